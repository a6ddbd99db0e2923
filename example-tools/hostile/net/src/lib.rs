//! Tries to reach hosts that were not granted. Every function says honestly what it got.

/// Attacks on the network.
#[portcullis_guest::tools]
mod net {
    use portcullis_guest::http::{self, Request, Response};
    use std::io::{self, Read, Write};
    use std::net::{TcpListener, TcpStream, ToSocketAddrs, UdpSocket};

    /// What one attack got, or why it got nothing.
    type Got = Result<String, String>;

    fn told<T: ToString>(result: io::Result<T>) -> Got {
        result.map(|got| got.to_string()).map_err(|error| format!("{:?}: {error}", error.kind()))
    }

    /// Get a URL: the status and the body.
    pub fn try_get(url: String) -> Got {
        http::get(&url).map(shown).map_err(|error| error.to_string())
    }

    /// Send any request, with any headers.
    pub fn request(method: String, url: String, headers: Vec<(String, String)>, body: String) -> Got {
        let mut request = Request::builder().method(method.as_str()).uri(url);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request.body(body.into_bytes()).map_err(|error| error.to_string())?;
        http::send(request).map(shown).map_err(|error| error.to_string())
    }

    /// Send any request, with any headers, and show all of the answer: status, headers, body.
    pub fn exchange(method: String, url: String, headers: Vec<(String, String)>) -> Got {
        let mut request = Request::builder().method(method.as_str()).uri(url);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request.body(Vec::new()).map_err(|error| error.to_string())?;
        let response = http::send(request).map_err(|error| error.to_string())?;
        let mut text = format!("{}\n", response.status().as_u16());
        for (name, value) in response.headers() {
            text.push_str(&format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes())));
        }
        Ok(format!("{text}\n{}", String::from_utf8_lossy(response.body())))
    }

    /// Whether a credential of this name can be used.
    pub fn usable(name: String) -> bool {
        portcullis_guest::credential::usable(&name)
    }

    /// Everything that this process was given: variables and arguments.
    pub fn belongings() -> String {
        let variables = std::env::vars().map(|(name, value)| format!("{name}={value}"));
        variables.chain(std::env::args()).collect::<Vec<_>>().join("\n")
    }

    /// Get a URL and follow redirects wherever they lead.
    pub fn follow(url: String, times: u32) -> Got {
        let mut url = url;
        for _ in 0..times {
            let response = http::get(&url).map_err(|error| format!("{url}: {error}"))?;
            match response.headers().get("location") {
                Some(next) => url = String::from_utf8_lossy(next.as_bytes()).into_owned(),
                None => return Ok(shown(response)),
            }
        }
        Err(format!("more than {times} redirects, the last to {url}"))
    }

    fn shown(response: Response<Vec<u8>>) -> String {
        let status = response.status().as_u16();
        format!("{status} {}", String::from_utf8_lossy(response.body()))
    }

    /// Connect by TCP, as in `127.0.0.1:80` or `localhost:80`.
    pub fn tcp_connect(address: String) -> Got {
        told(TcpStream::connect(address).map(|_| "connected"))
    }

    /// Connect by TCP, send a text, and read until the other side closes.
    pub fn tcp_exchange(address: String, text: String) -> Got {
        let mut answer = Vec::new();
        let exchanged = TcpStream::connect(address).and_then(|mut stream| {
            stream.write_all(text.as_bytes())?;
            stream.read_to_end(&mut answer)
        });
        told(exchanged.map(|_| String::from_utf8_lossy(&answer).into_owned()))
    }

    /// Wait for others to connect.
    pub fn tcp_listen(address: String) -> Got {
        told(TcpListener::bind(address).map(|_| "listening"))
    }

    /// Send a datagram.
    pub fn udp_send(address: String, text: String) -> Got {
        let socket = UdpSocket::bind("0.0.0.0:0");
        told(socket.and_then(|socket| socket.send_to(text.as_bytes(), address)))
    }

    /// Connect by UDP, then send.
    pub fn udp_connect_send(address: String, text: String) -> Got {
        let socket = UdpSocket::bind("0.0.0.0:0");
        told(socket.and_then(|socket| {
            socket.connect(address)?;
            socket.send(text.as_bytes())
        }))
    }

    /// Look up a name: every address that it has.
    pub fn lookup(name: String) -> Got {
        let found = (name.as_str(), 0).to_socket_addrs();
        told(found.map(|addresses| {
            let addresses = addresses.map(|address| address.ip().to_string());
            addresses.collect::<Vec<_>>().join("\n")
        }))
    }
}
