//! The limit server on tokio's current-thread runtime, to measure the runtime's overhead. Usage: `tokio_bare PORT`.

use std::net::Ipv4Addr;

use answer::{ANSWER, BATCH_MAX, HeadEnd};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

fn main() -> std::io::Result<()> {
    let port: u16 = std::env::args().nth(1).and_then(|port| port.parse().ok()).expect("usage: tokio_bare PORT");
    let answers: &'static [u8] = answer::batch().leak();
    tokio::runtime::Builder::new_current_thread().enable_io().build()?.block_on(async move {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind((Ipv4Addr::LOCALHOST, port).into())?;
        let listener = socket.listen(4096)?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            // An error of a connection ends only that connection.
            tokio::spawn(async move { serve(stream, answers).await.ok() });
        }
    })
}

async fn serve(mut stream: TcpStream, answers: &[u8]) -> std::io::Result<()> {
    let mut bytes = vec![0; 16 << 10];
    let mut end = HeadEnd::default();
    loop {
        let read = stream.read(&mut bytes).await?;
        if read == 0 {
            return Ok(());
        }
        let mut due = end.count(&bytes[..read]);
        while due > 0 {
            let now = due.min(BATCH_MAX);
            stream.write_all(&answers[..now * ANSWER.len()]).await?;
            due -= now;
        }
    }
}
