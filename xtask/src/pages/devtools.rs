//! Controls Chromium through the DevTools protocol.
//!
//! The transport is `--remote-debugging-pipe`: JSON messages, each followed by a zero byte, on descriptors 3 and 4. A
//! pipe needs no port and no WebSocket, and closing it ends the browser.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

/// Timeout for one answer of a browser on a busy machine.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Time for late drawing and errors after a page has loaded.
const SETTLE: Duration = Duration::from_millis(150);

/// A headless browser with an empty profile.
pub(super) struct Browser {
    child: Child,
    /// `None` after the pipe is closed.
    orders: Option<ChildStdin>,
    messages: Receiver<Value>,
    events: VecDeque<Value>,
    last_id: u64,
}

impl Browser {
    /// Starts the browser; `directory` must be empty and becomes the profile.
    pub(super) fn start(chromium: &Path, directory: &Path) -> anyhow::Result<Self> {
        // Rust passes only descriptors 0 to 2 to a child, so a shell moves two of them to 3 and 4.
        let mut command = Command::new("sh");
        command.args(["-c", r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null"#]).arg(chromium);
        command.args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]);
        command.args(["--disable-background-networking", "--disable-component-update", "--disable-sync"]);
        command.args(["--disable-dev-shm-usage", "--remote-debugging-pipe", "about:blank"]);
        // The test's certificate comes from an untrusted authority.
        command.arg("--ignore-certificate-errors");
        command.arg(format!("--user-data-dir={}", directory.display()));
        let log = directory.with_extension("log");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(&log)?);
        let mut child = command.spawn().context("cannot start chromium")?;
        let orders = child.stdin.take();
        let answers = child.stdout.take().context("chromium has no output")?;
        let (sender, messages) = mpsc::channel();
        std::thread::spawn(move || read(answers, &sender));
        let mut browser = Self { child, orders, messages, events: VecDeque::new(), last_id: 0 };
        browser.call(None, "Browser.getVersion", json!({})).with_context(|| {
            format!("chromium does not answer: {}", std::fs::read_to_string(&log).unwrap_or_default())
        })?;
        Ok(browser)
    }

    /// Opens an empty tab, with events enabled.
    pub(super) fn open(&mut self) -> anyhow::Result<Tab<'_>> {
        let made = self.call(None, "Target.createTarget", json!({ "url": "about:blank" }))?;
        let target = made["targetId"].as_str().context("a tab without id")?.to_owned();
        let attached = self.call(None, "Target.attachToTarget", json!({ "targetId": target, "flatten": true }))?;
        let session = attached["sessionId"].as_str().context("a tab without session")?.to_owned();
        let mut tab = Tab { browser: self, target, session };
        for domain in ["Page", "Runtime", "Log", "Network"] {
            tab.call(&format!("{domain}.enable"), json!({}))?;
        }
        tab.call("Page.setLifecycleEventsEnabled", json!({ "enabled": true }))?;
        tab.take_events();
        Ok(tab)
    }

    /// Calls a method and waits for its result. Events that arrive before it are kept.
    fn call(&mut self, session: Option<&str>, method: &str, params: Value) -> anyhow::Result<Value> {
        let id = self.send(session, method, params)?;
        let until = Instant::now() + ANSWER_MAX;
        loop {
            let message = self.receive(until).with_context(|| format!("{method} was not answered"))?;
            if message["id"] == id {
                if let Some(error) = message.get("error") {
                    bail!("{method}: {error}");
                }
                return Ok(message["result"].clone());
            }
            self.keep(message)?;
        }
    }

    fn send(&mut self, session: Option<&str>, method: &str, params: Value) -> anyhow::Result<u64> {
        self.last_id += 1;
        let mut message = json!({ "id": self.last_id, "method": method, "params": params });
        if let Some(session) = session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = serde_json::to_vec(&message)?;
        bytes.push(0);
        self.orders
            .as_mut()
            .context("the pipe to chromium is closed")?
            .write_all(&bytes)
            .context("chromium is gone")?;
        Ok(self.last_id)
    }

    fn receive(&mut self, until: Instant) -> anyhow::Result<Value> {
        Ok(self.messages.recv_timeout(until.saturating_duration_since(Instant::now()))?)
    }

    /// Keeps an event for later; drops a late answer to [`send`](Self::send).
    fn keep(&mut self, message: Value) -> anyhow::Result<()> {
        if message["method"] == "Page.javascriptDialogOpening" {
            // A dialog blocks the page, and with it the answer that we wait for.
            let session = message["sessionId"].as_str().map(str::to_owned);
            self.send(session.as_deref(), "Page.handleJavaScriptDialog", json!({ "accept": true }))?;
        }
        if message.get("method").is_some() {
            self.events.push_back(message);
        }
        Ok(())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.send(None, "Browser.close", json!({}));
        // Closing the pipe also ends a browser that ignored the command.
        self.orders = None;
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(5) {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Forwards the browser's messages until the pipe closes.
fn read(answers: ChildStdout, sender: &mpsc::Sender<Value>) {
    let mut answers = BufReader::new(answers);
    let mut message = Vec::new();
    while let Ok(1..) = answers.read_until(0, &mut message) {
        let parsed = serde_json::from_slice(message.strip_suffix(&[0]).unwrap_or(&message));
        message.clear();
        let Ok(value) = parsed else { return };
        if sender.send(value).is_err() {
            return;
        }
    }
}

fn is_load(event: &Value) -> bool {
    event["method"] == "Page.lifecycleEvent" && event["params"]["name"] == "load"
}

/// A tab of the browser.
pub(super) struct Tab<'b> {
    browser: &'b mut Browser,
    target: String,
    session: String,
}

impl Tab<'_> {
    pub(super) fn call(&mut self, method: &str, params: Value) -> anyhow::Result<Value> {
        self.browser.call(Some(&self.session), method, params)
    }

    /// Opens a URL and waits until the page has loaded.
    pub(super) fn go(&mut self, url: &str) -> anyhow::Result<()> {
        let answer = self.call("Page.navigate", json!({ "url": url }))?;
        if let Some(error) = answer["errorText"].as_str() {
            bail!("cannot open {url}: {error}");
        }
        // Match the load's identifier: the load event of the previous, empty page may arrive late.
        let loader = &answer["loaderId"];
        if !self.wait(ANSWER_MAX, |event| is_load(event) && event["params"]["loaderId"] == *loader)? {
            bail!("{url} does not finish loading");
        }
        self.settle()
    }

    /// Waits for the page that a click opened, at most for `limit`: the click may have no effect.
    pub(super) fn follow(&mut self, limit: Duration) -> anyhow::Result<()> {
        self.wait(limit, is_load)?;
        self.settle()
    }

    fn settle(&mut self) -> anyhow::Result<()> {
        self.wait(SETTLE, |_| false).map(drop)
    }

    /// Waits for an event that fits, and removes it. Returns false after `limit`.
    fn wait(&mut self, limit: Duration, fits: impl Fn(&Value) -> bool) -> anyhow::Result<bool> {
        let until = Instant::now() + limit;
        loop {
            if let Some(at) =
                self.browser.events.iter().position(|event| event["sessionId"] == *self.session && fits(event))
            {
                self.browser.events.remove(at);
                return Ok(true);
            }
            match self.browser.receive(until) {
                Ok(message) => self.browser.keep(message)?,
                Err(_) if Instant::now() >= until => return Ok(false),
                Err(error) => return Err(error.context("chromium is gone")),
            }
        }
    }

    /// Evaluates a JavaScript expression and returns its value. A promise is awaited.
    pub(super) fn evaluate(&mut self, expression: &str) -> anyhow::Result<Value> {
        let params = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let answer = self.call("Runtime.evaluate", params)?;
        if let Some(thrown) = answer.get("exceptionDetails") {
            bail!("{expression}: {}", thrown["exception"]["description"].as_str().unwrap_or("threw"));
        }
        Ok(answer["result"]["value"].clone())
    }

    /// Clicks on the middle of the selected element, so that an invisible or covered element does not count as
    /// clickable. Returns false when it has no size.
    pub(super) fn click(&mut self, selector: &str) -> anyhow::Result<bool> {
        let quoted = json!(selector);
        let middle = self.evaluate(&format!(
            "(() => {{ const it = document.querySelector({quoted}); if (!it) return null; it.scrollIntoView({{ block: \
             'center' }}); const box = it.getBoundingClientRect(); return box.width && box.height ? [box.x + box.width / 2, \
             box.y + box.height / 2] : null }})()"
        ))?;
        let (Some(x), Some(y)) = (middle[0].as_f64(), middle[1].as_f64()) else { return Ok(false) };
        for kind in ["mousePressed", "mouseReleased"] {
            let params = json!({ "type": kind, "x": x, "y": y, "button": "left", "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", params)?;
        }
        Ok(true)
    }

    /// Returns a screenshot of the whole page as PNG.
    pub(super) fn screenshot(&mut self) -> anyhow::Result<Vec<u8>> {
        let answer = self.call("Page.captureScreenshot", json!({ "format": "png", "captureBeyondViewport": true }))?;
        BASE64_STANDARD.decode(answer["data"].as_str().unwrap_or_default()).context("a screenshot that is no base64")
    }

    /// Returns the tab's events since the last call, except those that [`wait`](Self::wait) removed.
    pub(super) fn take_events(&mut self) -> Vec<Value> {
        let (mine, others): (Vec<_>, Vec<_>) =
            self.browser.events.drain(..).partition(|event| event["sessionId"] == *self.session);
        self.browser.events = others.into();
        mine
    }

    pub(super) fn close(self) -> anyhow::Result<()> {
        self.browser.call(None, "Target.closeTarget", json!({ "targetId": self.target })).map(drop)
    }
}
