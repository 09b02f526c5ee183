//! Whether this process was asked to end: once asked, for good, whatever it does at that moment.

use std::sync::OnceLock;
use std::sync::mpsc;
use std::thread;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// None where the system lets nobody listen: then a signal ends the process at once.
static ASKED: OnceLock<Option<watch::Receiver<bool>>> = OnceLock::new();

/// From now on Ctrl-C, SIGTERM and the loss of a terminal are heard, also between two runs.
pub(crate) fn listen() {
    ASKED.get_or_init(|| {
        let (tell, asked) = watch::channel(false);
        let (ready, listens) = mpsc::channel();
        let thread = thread::Builder::new().name("signals".into());
        thread.spawn(move || hear(&ready, &tell)).ok()?;
        listens.recv().ok().map(|()| asked)
    });
}

/// Waits for the first signal, in a thread that has nothing else to do.
fn hear(ready: &mpsc::Sender<()>, tell: &watch::Sender<bool>) {
    let Ok(runtime) = Builder::new_current_thread().enable_all().build() else { return };
    runtime.block_on(async {
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let [Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)] = kinds.map(signal) else {
            return;
        };
        let _ = ready.send(());
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
        tell.send_replace(true);
        // Others may begin to ask later.
        std::future::pending::<()>().await;
    });
}

/// Ctrl-C, being asked to end, or a terminal that is gone: ready as soon as one of them came, ever.
pub(crate) fn asked_to_end() -> impl Future<Output = ()> {
    listen();
    let asked = ASKED.get().cloned().flatten();
    async move {
        if let Some(mut asked) = asked
            && asked.wait_for(|asked| *asked).await.is_ok()
        {
            return;
        }
        std::future::pending().await
    }
}
