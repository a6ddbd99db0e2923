#![allow(unused)]

#[portcullis_guest::tools]
mod tool {
    pub async fn wait() {}
}

fn main() {}
