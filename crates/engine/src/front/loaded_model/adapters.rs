//! Loading and unloading adapters of a loaded model.

use std::path::Path;
use std::time::Duration;

use super::LoadedModel;
use crate::error::Failure;
use crate::front::adapters::check_name;
use crate::info::ModelInfo;
use crate::message::{Answer, Command};
use crate::settings::NamedAdapter;

/// How long a load may take.
const LOAD_TIMEOUT: Duration = Duration::from_secs(300);

impl LoadedModel {
    /// Loads an adapter that requests may name from then on. Blocks until it is loaded; steps wait for it, too.
    pub(crate) fn load_adapter(&self, name: &str, path: &Path) -> Result<ModelInfo, Failure> {
        let adapters = &self.adapters;
        check_name(name, &self.info).map_err(|why| Failure::bad_request("lora_name", why))?;
        let _change = adapters.changes();
        if adapters.find(name).is_some() {
            let message = format!("an adapter named `{name}` is loaded already; unload it first");
            return Err(Failure::bad_request("lora_name", message));
        }
        let adapter = NamedAdapter::new(name, path);
        let answer = self.query(LOAD_TIMEOUT, |query| Command::LoadAdapter(query, adapter))?;
        match answer {
            Answer::Adapter(Ok(id)) => adapters.insert(name.to_owned(), path.to_owned(), id),
            Answer::Adapter(Err(why)) => return Err(Failure::bad_request("lora_path", why)),
            Answer::Sessions(_) | Answer::Blocks(_) => {
                return Err(Failure::unavailable("unexpected reply from the engine; this is a bug"));
            }
        }
        let loaded = adapters.models(&self.info).into_iter().find(|model| model.id == name);
        loaded.ok_or_else(|| Failure::unknown_model(name, &self.models()))
    }

    /// Unloads an adapter. New requests for it are refused at once; those that run are waited for.
    pub(crate) async fn unload_adapter(&self, name: &str) -> Result<(), Failure> {
        let adapters = &self.adapters;
        let unknown = || Failure::unknown_model(name, &self.models());
        let retired = adapters.remove(name).ok_or_else(unknown)?;
        let id = retired.id;
        retired.unused().await;
        let _change = adapters.changes();
        if adapters.has(id) { Ok(()) } else { self.send(Command::UnloadAdapter(id)) }
    }
}
