//! HTTPS through the one dialer: the name is checked against the certificate, and only the platform's authorities count.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "tests")]

mod common;

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use common::World;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

/// An HTTPS server on loopback with a certificate for `name`, and the file of the authority that signed it.
fn server(name: &str, folder: &Path) -> (u16, PathBuf) {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
    let file = folder.join(format!("{name}.pem"));
    std::fs::write(&file, authority.pem()).unwrap();

    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from(certificate.der().to_vec())],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    let config = Arc::new(config);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = StreamOwned::new(ServerConnection::new(config.clone()).unwrap(), stream);
            // A client that does not trust this server ends the handshake here.
            if stream.read(&mut [0; 4096]).is_ok_and(|read| read > 0) {
                let _ = stream.write_all(&common::answer(200, "hello over TLS"));
                stream.conn.send_close_notify();
                let _ = stream.flush();
                // Closing with something unread would reset the connection under the answer.
                let _ = stream.sock.set_read_timeout(Some(std::time::Duration::from_secs(2)));
                while stream.read(&mut [0; 4096]).is_ok_and(|read| read > 0) {}
            }
        }
    });
    (port, file)
}

fn call(world: &World, url: &str, authorities: &Path) -> Output {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cli-cache");
    Command::new(env!("CARGO_BIN_EXE_portcullis"))
        .arg("--config")
        .arg(world.path("portcullis.toml"))
        .args(["call", "net/try-get", "--args"])
        .arg(format!("{{\"url\":\"{url}\"}}"))
        .env("XDG_STATE_HOME", cache.join("state"))
        .env("XDG_DATA_HOME", cache.join("data"))
        .env("XDG_CACHE_HOME", cache.join("cache"))
        .env("SSL_CERT_FILE", authorities)
        .env_remove("SSL_CERT_DIR")
        .output()
        .unwrap()
}

#[test]
fn a_certificate_of_a_trusted_authority_for_this_name_is_accepted_and_no_other() {
    let world = World::new("");
    let (port, authority) = server("localhost", world.folder.path());
    let (other_port, other_authority) = server("other.test", world.folder.path());
    let grants = [port, other_port].map(|port| format!("{{ url = \"https://localhost:{port}/*\", private = true }}"));
    world.configure(&format!(
        "[tools.net]\nsource = \"hostile-net.wasm\"\nhttp = [{}]\n[[policy.rules]]\ntool = \"net/*\"\nverdict = \"allow\"\n",
        grants.join(", ")
    ));
    let good = call(&world, &format!("https://localhost:{port}/x"), &authority);
    assert!(good.status.success(), "{}", String::from_utf8_lossy(&good.stderr));
    assert!(String::from_utf8_lossy(&good.stdout).contains("hello over TLS"));
    for (port, authorities, why) in [
        (port, &other_authority, "an authority that is not trusted"),
        (other_port, &other_authority, "a certificate for another name"),
    ] {
        let refused = call(&world, &format!("https://localhost:{port}/x"), authorities);
        assert_eq!(refused.status.code(), Some(1), "{why}: {}", String::from_utf8_lossy(&refused.stdout));
        assert!(
            String::from_utf8_lossy(&refused.stderr).contains("TLS"),
            "{}",
            String::from_utf8_lossy(&refused.stderr)
        );
    }
}
