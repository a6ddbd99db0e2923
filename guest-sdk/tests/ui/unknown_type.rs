#![allow(unused)]

#[portcullis_guest::tools]
mod tool {
    use std::collections::HashSet;
    use std::path::PathBuf;

    pub fn foreign(socket: std::net::TcpStream) {}
    pub fn elsewhere(value: crate::Elsewhere) {}
    pub fn path(path: PathBuf) {}
    pub fn set(set: HashSet<String>) {}
    pub fn fails() -> Result<String, std::io::Error> {
        Ok(String::new())
    }
}

pub struct Elsewhere;

fn main() {}
