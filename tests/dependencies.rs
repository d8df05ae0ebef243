//! Checks that the dependencies are allowed by deny.toml, that the SBOM lists all of them, and that
//! what builds a release has a hash.
//!
//! cargo-deny reads the same file. This test checks the part that needs neither a database of
//! advisories nor minutes to compile.
#![cfg(test)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;
use spdx::{Expression, LicenseReq, Licensee, ParseMode};
use testkit::artifacts::{GUARD, MODULE};
use testkit::{Findings, repository};

fn deny(section: &str) -> toml::Table {
    let text = fs::read_to_string(repository().join("deny.toml")).unwrap();
    let mut whole: toml::Table = text.parse().unwrap();
    whole.remove(section).and_then(|section| section.try_into().ok()).unwrap()
}

fn texts(list: &toml::Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

fn cargo(words: &[&str]) -> String {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let output = Command::new(cargo).current_dir(repository()).args(words).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the lines of `cargo tree`, each once.
fn tree(words: &[&str]) -> BTreeSet<String> {
    let text = cargo(&[&["tree", "--locked", "--prefix", "none"], words].concat());
    let lines = text.lines().filter(|line| !line.is_empty());
    lines.map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
}

/// Returns every crate of the workspace and its dependencies, for any platform.
fn everything(format: &str) -> BTreeSet<String> {
    let all = ["--workspace", "--all-features", "--target", "all", "--edges", "normal,build,dev"];
    tree(&[&all[..], &["--format", format]].concat())
}

#[test]
fn licences_match_the_list_of_allowed_ones() {
    let deny = deny("licenses");
    let allowed: Vec<_> =
        texts(&deny["allow"]).into_iter().map(|name| Licensee::parse(name).unwrap()).collect();
    let mut used = BTreeSet::new();
    let mut findings = Findings::default();
    for line in everything("{p}|{l}") {
        let (package, licence) = line.split_once('|').unwrap();
        let Ok(licence) = Expression::parse_mode(licence, ParseMode::LAX) else {
            findings.add(format!("{package}: not a licence: {licence:?}"));
            continue;
        };
        let mut satisfies = |wanted: &LicenseReq| {
            let found = allowed.iter().find(|allowed| allowed.satisfies(wanted));
            used.extend(found.map(ToString::to_string));
            found.is_some()
        };
        if !licence.evaluate(&mut satisfies) {
            findings.add(format!("{package}: {licence}"));
        }
    }
    for allowed in allowed.iter().filter(|allowed| !used.contains(&allowed.to_string())) {
        findings.add(format!("{allowed} is allowed, but no crate has it"));
    }
}

#[test]
fn each_crate_has_one_version() {
    let deny = deny("bans");
    let skipped = deny["skip"].as_array().unwrap().iter();
    let skipped: Vec<_> = skipped.map(|skip| skip["crate"].as_str().unwrap()).collect();
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in everything("{p}") {
        let mut words = package.split(' ');
        let (name, version) = (words.next().unwrap(), words.next().unwrap());
        versions.entry(name.into()).or_default().insert(version.trim_start_matches('v').into());
    }
    let mut findings = Findings::default();
    for skip in &skipped {
        let (name, version) = skip.split_once('@').unwrap();
        let there = versions.get_mut(name).is_some_and(|all| all.len() > 1 && all.remove(version));
        findings.expect(format!("{skip} is still needed"), &there, &true);
    }
    for (name, versions) in versions.iter().filter(|(_, versions)| versions.len() > 1) {
        findings.add(format!("{name} has the versions {versions:?}"));
    }
}

#[test]
fn crates_come_from_the_registry_and_by_version() {
    let deny = deny("sources");
    let lock = fs::read_to_string(repository().join("Cargo.lock")).unwrap();
    let mut findings = Findings::default();
    for source in lock.lines().filter_map(|line| line.strip_prefix("source = ")) {
        let known = source.trim_matches('"').strip_prefix("registry+");
        if !known.is_some_and(|registry| texts(&deny["allow-registry"]).contains(&registry)) {
            findings.add(source);
        }
    }
    let metadata = cargo(&["metadata", "--locked", "--no-deps", "--format-version", "1"]);
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    for package in metadata["packages"].as_array().unwrap() {
        for dependency in package["dependencies"].as_array().unwrap() {
            if dependency["req"] == "*" && dependency["path"].is_null() {
                findings.add(format!(
                    "{} accepts any version of {}",
                    package["name"], dependency["name"]
                ));
            }
        }
    }
}

/// Returns the npm packages in the page of live impersonations, from the lock file: what is not
/// only for its build.
fn packages_in_the_page() -> Vec<(String, Value)> {
    let lock = repository().join("console/package-lock.json");
    let lock: Value = serde_json::from_slice(&fs::read(lock).unwrap()).unwrap();
    let packages = lock["packages"].as_object().unwrap().iter();
    let shipped = packages.filter(|(_, package)| package["dev"] != true);
    let named = shipped.filter_map(|(path, package)| {
        Some((path.strip_prefix("node_modules/")?.to_owned(), package.clone()))
    });
    named.collect()
}

#[test]
fn npm_packages_in_the_page_have_licences_of_the_list() {
    let deny = deny("licenses");
    let mut findings = Findings::default();
    for (name, package) in packages_in_the_page() {
        let licence = package["license"].as_str().unwrap();
        let allowed = texts(&deny["allow"]).contains(&licence);
        findings.expect(format!("{name}: {licence} is allowed"), &allowed, &true);
    }
}

/// Returns the lines of the files that build what is shipped, without comments, with their places.
/// A line that goes on in the next is one.
fn build_lines() -> Vec<(String, String)> {
    let scripts = fs::read_dir(repository().join("scripts")).unwrap();
    let scripts = scripts.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    let files = ["Makefile", "Dockerfile", ".github/workflows/release.yml"];
    let mut lines = Vec::new();
    for path in scripts.chain(files.map(|file| repository().join(file))) {
        let text = fs::read_to_string(&path).unwrap().replace("\\\n", " ");
        let name = path.strip_prefix(repository()).unwrap().display().to_string();
        let code = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
        lines.extend(code.map(|line| (name.clone(), line.to_owned())));
    }
    lines
}

/// Scripts that install what only tests run.
const FOR_TESTS: [&str; 2] = ["scripts/envoy", "scripts/python-with"];

#[test]
fn whatever_builds_what_is_shipped_has_a_hash() {
    let mut findings = Findings::default();
    let mut installs = BTreeMap::new();
    for (place, line) in build_lines() {
        let mut expect = |kind: &'static str, holds: bool| {
            *installs.entry(kind).or_insert(0) += 1;
            findings.expect(format!("{place}: {line}"), &holds, &true);
        };
        if line.contains("pip\" install") && !FOR_TESTS.contains(&&*place) {
            expect("pip", line.contains("--require-hashes"));
        }
        if line.contains("npm ci") || line.contains("npm install") || line.contains("npx ") {
            expect("npm", line.contains("npm ci"));
        }
        let builds = ["cargo-anywhere build", "cargo-anywhere', 'build'"];
        if builds.iter().any(|build| line.contains(build)) && !line.contains("test-plugin") {
            expect("cargo", line.contains("--locked"));
        }
        let base = line.strip_prefix("FROM ").or_else(|| line.strip_prefix("COPY --from="));
        let base = base.and_then(|rest| rest.split(' ').next()).filter(|_| place == "Dockerfile");
        // Another stage has no tag. Envoy's image is the builder's own: tests/js/compose.
        if let Some(base) = base.filter(|base| base.contains(':')) {
            let digest = base.split_once("@sha256:").map(|(_, digest)| digest);
            let is_hex = |digest: &str| digest.bytes().all(|byte| byte.is_ascii_hexdigit());
            expect("image", digest.is_some_and(|digest| digest.len() == 64 && is_hex(digest)));
        }
    }
    let kinds: Vec<_> = installs.into_keys().collect();
    assert_eq!(kinds, ["cargo", "image", "npm", "pip"], "a kind was not looked at");

    let requirements = fs::read_to_string(repository().join("scripts/zig.txt")).unwrap();
    let requirements = requirements.replace("\\\n", " ");
    for line in requirements.lines().filter(|line| !line.starts_with('#')) {
        let pinned = line.contains("==") && line.contains("--hash=sha256:");
        findings.expect(format!("zig.txt: {line}"), &pinned, &true);
    }
    for lock in ["console", "scripts/binaryen", "tests/js"] {
        let lock = repository().join(lock).join("package-lock.json");
        let lock: Value = serde_json::from_slice(&fs::read(&lock).unwrap()).unwrap();
        let packages = lock["packages"].as_object().unwrap().iter();
        for (path, package) in packages.filter(|(path, _)| !path.is_empty()) {
            let sum = package["integrity"].as_str().unwrap_or_default();
            findings.expect(path, &sum.starts_with("sha512-"), &true);
        }
    }
    let lock = fs::read_to_string(repository().join("Cargo.lock")).unwrap();
    for package in lock.split("\n\n").filter(|package| package.contains("\nsource = ")) {
        findings.expect(package, &package.contains("\nchecksum = \""), &true);
    }
}

/// Makes the SBOM of one module beside it.
fn sbom(package: &str, module: &Path) -> Value {
    // The module must be built and shrunk.
    assert!(module.exists());
    let script = repository().join("scripts/sbom");
    let output = Command::new(script).arg(package).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns the components of the document, and the components inside them.
fn components(document: &Value) -> Vec<&Value> {
    let own = document["components"].as_array().into_iter().flatten();
    own.flat_map(|one| [vec![one], components(one)].concat()).collect()
}

#[test]
fn the_sbom_of_a_module_lists_all_its_crates() {
    let lock = fs::read_to_string(repository().join("Cargo.lock")).unwrap();
    let mut findings = Findings::default();
    for (package, module) in [("impersonation-filter", &*MODULE), ("impersonation-guard", &*GUARD)]
    {
        let document = sbom(package, module);
        let own = &document["metadata"]["component"];
        let digest = digest(&SHA256, &fs::read(module).unwrap());
        let digest: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        findings.expect(
            format!("the hash of {package}"),
            &own["hashes"][0]["content"],
            &digest.into(),
        );

        // The expected list is what Cargo would compile; the document lists what Cargo did compile.
        let edges =
            ["--package", package, "--target", "wasm32-wasip1", "--edges", "normal,no-proc-macro"];
        let expected: BTreeSet<_> = tree(&edges)
            .into_iter()
            .map(|line| {
                let mut words = line.split(' ');
                let (name, version) = (words.next().unwrap(), words.next().unwrap());
                format!("pkg:cargo/{name}@{}", version.trim_start_matches('v').replace('+', "%2B"))
            })
            .collect();
        let components = components(&document);
        let all = components.iter().chain([&own]);
        let crates: BTreeSet<_> = all
            .clone()
            .filter_map(|one| one["purl"].as_str())
            .filter(|purl| purl.starts_with("pkg:cargo/"))
            .map(str::to_owned)
            .collect();
        findings.expect(format!("the crates of {package}"), &crates, &expected);

        let npm = components
            .iter()
            .filter(|one| one["purl"].as_str().is_some_and(|purl| purl.starts_with("pkg:npm/")));
        let npm: BTreeMap<_, _> = npm
            .map(|one| (one["name"].as_str().unwrap(), one["hashes"][0]["content"].as_str()))
            .collect();
        let in_page = packages_in_the_page();
        let sum = |package: &Value| {
            let sum = package["integrity"].as_str().unwrap().strip_prefix("sha512-").unwrap();
            let sum = BASE64_STANDARD.decode(sum).unwrap();
            sum.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        let in_page: BTreeMap<_, _> =
            in_page.iter().map(|(name, package)| (&**name, sum(package))).collect();
        let has_page = package == "impersonation-filter";
        let expected: BTreeMap<_, _> = (in_page.iter().filter(|_| has_page))
            .map(|(name, sum)| (*name, Some(&**sum)))
            .collect();
        findings.expect(format!("the npm packages of {package}"), &npm, &expected);

        let others: BTreeSet<_> = components
            .iter()
            .map(|one| one["name"].as_str().unwrap())
            .filter(|name| ["quickjs-ng", "rust-std", "wasi-libc"].contains(name))
            .collect();
        let engine = package == "impersonation-filter";
        findings.expect(format!("QuickJS in {package}"), &others.contains("quickjs-ng"), &engine);
        assert!(others.contains("rust-std") && others.contains("wasi-libc"));

        for component in all.clone() {
            let name = &component["name"];
            let licence = component["licenses"][0]["expression"].as_str().unwrap();
            assert!(Expression::parse(licence).is_ok(), "{name}: {licence}");
            let hash = &component["hashes"][0];
            let is_crate = component != &own && hash["alg"] == "SHA-256";
            if let Some(checksum) = hash["content"].as_str().filter(|_| is_crate) {
                assert!(lock.contains(checksum), "{name}: {checksum}");
            }
        }
        let refs: Vec<_> = all.map(|one| &one["bom-ref"]).collect();
        for edge in document["dependencies"].as_array().unwrap() {
            for one in edge["dependsOn"].as_array().unwrap().iter().chain([&edge["ref"]]) {
                findings.expect(
                    format!("{one} once"),
                    &refs.iter().filter(|known| **known == one).count(),
                    &1,
                );
            }
        }
    }
}
