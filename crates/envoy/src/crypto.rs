//! Envoy's foreign functions for signatures, which use BoringSSL. Their arguments are protobuf
//! messages.

use prost::Message;
use proxy_wasm::hostcalls;

use impersonation_core::jose::NativeCrypto;

/// Envoy's `sign` and `verify_signature`. In an Envoy without them every call returns `None`.
pub struct ForeignFunctions;

#[derive(Message)]
struct SignArguments {
    #[prost(string, tag = "1")]
    hash_function: String,
    #[prost(bytes = "vec", tag = "2")]
    private_key: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    text: Vec<u8>,
}

#[derive(Message)]
struct SignResult {
    #[prost(bool, tag = "1")]
    result: bool,
    #[prost(bytes = "vec", tag = "2")]
    signature: Vec<u8>,
}

#[derive(Message)]
struct VerifySignatureArguments {
    #[prost(string, tag = "1")]
    hash_function: String,
    #[prost(bytes = "vec", tag = "2")]
    public_key: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    signature: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    clear_text: Vec<u8>,
}

#[derive(Message)]
struct VerifySignatureResult {
    #[prost(bool, tag = "1")]
    result: bool,
}

fn call<R: Message + Default>(function: &str, arguments: &impl Message) -> Option<R> {
    let reply =
        hostcalls::call_foreign_function(function, Some(&arguments.encode_to_vec())).ok()??;
    R::decode(&*reply).ok()
}

impl NativeCrypto for ForeignFunctions {
    fn sign(&self, hash: &'static str, private_key: &[u8], message: &[u8]) -> Option<Vec<u8>> {
        let arguments = SignArguments {
            hash_function: hash.to_owned(),
            private_key: private_key.to_vec(),
            text: message.to_vec(),
        };
        let reply: SignResult = call("sign", &arguments)?;
        reply.result.then_some(reply.signature)
    }

    fn verify(
        &self,
        hash: &'static str,
        public_key: &[u8],
        signature: &[u8],
        message: &[u8],
    ) -> Option<bool> {
        let arguments = VerifySignatureArguments {
            hash_function: hash.to_owned(),
            public_key: public_key.to_vec(),
            signature: signature.to_vec(),
            clear_text: message.to_vec(),
        };
        let reply: VerifySignatureResult = call("verify_signature", &arguments)?;
        Some(reply.result)
    }
}
