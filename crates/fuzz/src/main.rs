//! With `--cfg libfuzzer`, and instrumented by `scripts/fuzz`: a fuzzer of the target that
//! `FUZZ_TARGET` names. Without: the copying between its folder and the committed corpus.
#![cfg_attr(libfuzzer, no_main)]

#[cfg(libfuzzer)]
mod libfuzzer {
    use std::sync::OnceLock;

    static TARGET: OnceLock<fn(&[u8])> = OnceLock::new();

    libfuzzer_sys::fuzz_target!(
        init: {
            let name = std::env::var("FUZZ_TARGET").expect("FUZZ_TARGET names a target");
            let target = fuzz::TARGETS.iter().find(|target| target.name == name);
            TARGET.set(target.expect("there is such a target").run).unwrap();
        },
        |data: &[u8]| TARGET.get().unwrap()(data)
    );
}

#[cfg(not(libfuzzer))]
fn main() {
    use std::fs;

    use fuzz::{TARGETS, corpus};

    let words: Vec<_> = std::env::args().skip(1).collect();
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["targets"] => TARGETS.iter().for_each(|target| println!("{}", target.name)),
        // A file for each input of the corpus.
        ["expand", target, folder] => {
            fs::create_dir_all(folder).unwrap();
            for (number, input) in corpus::read(target).into_iter().enumerate() {
                fs::write(format!("{folder}/committed-{number}"), input).unwrap();
            }
        }
        // All files of a folder are the corpus.
        ["collect", target, folder] => {
            let files = fs::read_dir(folder).unwrap();
            let inputs = files.map(|file| fs::read(file.unwrap().path()).unwrap());
            corpus::write(target, inputs.collect());
        }
        // Files again: a crash, say.
        ["run", target, ref files @ ..] => {
            let target = TARGETS.iter().find(|known| known.name == target).unwrap();
            files.iter().for_each(|file| (target.run)(&fs::read(file).unwrap()));
        }
        _ => {
            eprintln!(
                "fuzz targets | expand <target> <folder> | collect <target> <folder> | run <target> <file> ..."
            );
            std::process::exit(2);
        }
    }
}
