//! A property list of launchd.

use std::path::Path;

use super::{Service, ServiceFile};

/// The name of the service for `launchctl`.
pub const LABEL: &str = "omnibus";

/// The log of the service, below the user's home.
pub const LOG: &str = "Library/Logs/omnibus.log";

/// The property list of a user's service.
pub fn file(service: &Service, home: &Path) -> ServiceFile {
    let words = [service.program.display().to_string(), "serve".to_owned()];
    let words: String =
        words.iter().chain(&service.arguments).map(|word| format!("    {}\n", string(word))).collect();
    let log = string(&home.join(LOG).display().to_string());
    // Longer than --shutdown-timeout, in which running requests end. `Interactive`: its work is not slowed down.
    let text = format!(
        r#"<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
  <key>Label</key>
  {label}
  <key>ProgramArguments</key>
  <array>
{words}  </array>
  <key>RunAtLoad</key>
  <true/>
  <key>KeepAlive</key>
  <dict>
    <key>SuccessfulExit</key>
    <false/>
  </dict>
  <key>ProcessType</key>
  <string>Interactive</string>
  <key>ExitTimeOut</key>
  <integer>45</integer>
  <key>SoftResourceLimits</key>
  <dict>
    <key>NumberOfFiles</key>
    <integer>10240</integer>
  </dict>
  <key>StandardOutPath</key>
  {log}
  <key>StandardErrorPath</key>
  {log}
</dict>
</plist>
"#,
        label = string(LABEL),
    );
    ServiceFile { name: "omnibus.plist", text }
}

fn string(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    format!("<string>{text}</string>")
}
