//! The root context of a VM: configures the plugin, ticks it, and brings it replies.

use std::rc::Rc;
use std::time::Duration;

use impersonation_core::config::ConfigError;
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{ContextType, LogLevel};

use crate::host::{self, Envoy};

/// The delay of the first tick. Envoy tries a configuration in a VM that it then discards, together
/// with any fetch: only a VM that stays reaches its first tick.
const FIRST_TICK: Duration = Duration::from_millis(1);

/// A configured plugin in one VM. All contexts of the VM share it.
pub trait Plugin: Sized + 'static {
    /// The interval at which Envoy calls each VM for background work.
    const TICK: Duration;

    /// Reads the configuration. `root` is the number of the root context.
    fn configure(root: u32, host: &Rc<Envoy>, bytes: &[u8]) -> Result<Self, ConfigError>;

    /// Creates the context with this number, for one HTTP stream.
    fn http_context(self: &Rc<Self>, context: u32) -> Box<dyn HttpContext>;

    /// Does the background work that is due.
    fn on_tick(self: &Rc<Self>);

    /// Handles the reply to a gRPC call that the root context sent.
    fn on_grpc_reply(self: &Rc<Self>, call: u32, status: u32, size: usize);

    /// Handles the reply to an HTTP call that the root context sent.
    fn on_http_reply(self: &Rc<Self>, _call: u32, _num_headers: usize, _size: usize) {}

    /// Handles a message on a gRPC stream that the root context opened.
    fn on_stream_message(&self, _stream: u32, _size: usize) {}

    /// Handles the end of a gRPC stream that the root context opened.
    fn on_stream_close(&self, _stream: u32, _status: u32) {}

    /// Handles a call of [`abi::call_root`](crate::abi::call_root).
    fn on_called(&self) {}
}

/// Makes Envoy run this plugin. Call it in `proxy_wasm::main!`.
pub fn start<P: Plugin>() {
    // Envoy filters by its own log level. This call also turns a panic into a log line.
    proxy_wasm::set_log_level(LogLevel::Debug);
    proxy_wasm::set_root_context(|context| {
        Box::new(Root::<P> { context, ticked: false, plugin: None })
    });
}

struct Root<P> {
    context: u32,
    ticked: bool,
    plugin: Option<Rc<P>>,
}

impl<P: Plugin> Context for Root<P> {
    fn on_http_call_response(&mut self, call: u32, headers: usize, body: usize, _trailers: usize) {
        if let Some(plugin) = &self.plugin {
            plugin.on_http_reply(call, headers, body);
        }
    }

    fn on_grpc_call_response(&mut self, call: u32, status: u32, body: usize) {
        if let Some(plugin) = &self.plugin {
            plugin.on_grpc_reply(call, status, body);
        }
    }

    fn on_grpc_stream_message(&mut self, stream: u32, size: usize) {
        if let Some(plugin) = &self.plugin {
            plugin.on_stream_message(stream, size);
        }
    }

    fn on_grpc_stream_close(&mut self, stream: u32, status: u32) {
        if let Some(plugin) = &self.plugin {
            plugin.on_stream_close(stream, status);
        }
    }
}

impl<P: Plugin> RootContext for Root<P> {
    fn on_configure(&mut self, plugin_configuration_size: usize) -> bool {
        let bytes = host::plugin_configuration(plugin_configuration_size);
        let host = Rc::new(Envoy::default());
        match P::configure(self.context, &host, &bytes) {
            Ok(plugin) => {
                self.plugin = Some(Rc::new(plugin));
                self.ticked = false;
                host::tick_every(FIRST_TICK);
                true
            }
            Err(error) => {
                error.log(&*host);
                false
            }
        }
    }

    fn on_tick(&mut self) {
        if !std::mem::replace(&mut self.ticked, true) {
            host::tick_every(P::TICK);
        }
        if let Some(plugin) = &self.plugin {
            plugin.on_tick();
        }
    }

    /// No queue is used: [`abi::call_root`](crate::abi::call_root) calls this.
    fn on_queue_ready(&mut self, _queue: u32) {
        if let Some(plugin) = &self.plugin {
            plugin.on_called();
        }
    }

    /// Envoy drops a plugin that refused its configuration. If it showed one a request all the
    /// same, the SDK would end the VM, and Envoy would refuse the request.
    fn create_http_context(&self, context: u32) -> Option<Box<dyn HttpContext>> {
        self.plugin.as_ref().map(|plugin| plugin.http_context(context))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}
