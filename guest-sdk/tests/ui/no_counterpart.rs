#![allow(unused)]

#[portcullis_guest::tools]
mod tool {
    pub fn unit(unit: ()) {}
    pub fn array(array: [u8; 4]) {}
    pub fn pointer(pointer: fn(u32)) {}
    pub fn never() -> ! {
        loop {}
    }
    pub unsafe fn risky() {}
    pub extern "C" fn foreign() {}
}

fn main() {}
