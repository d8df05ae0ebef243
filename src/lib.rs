//! User impersonation at the gateway, as a proxy-wasm filter for Envoy.
