//! Compiles the parts of wsfast/core that the crate uses, and makes constants of the numbers in C headers: those of the
//! core, and those of the border. So no number is written twice.

use std::path::Path;
use std::{env, fs};

const CORE: &str = "../core";
const BORDER: &str = "wsfast_tungstenite.h";
const SOURCES: [&str; 8] =
    ["entropy.c", "frame.c", "mask.c", "mask_avx2.c", "mask_avx512.c", "mask_neon.c", "message.c", "utf8.c"];

fn main() {
    let core = Path::new(CORE);
    let mut build = cc::Build::new();
    build.std("c11").warnings(true).extra_warnings(true).define("NDEBUG", None);
    // SIMD code at opt-level 0 would make debug builds useless.
    build.opt_level(3);
    for name in SOURCES {
        build.file(core.join(name));
    }
    build.include(core).file("src/core_inline.c");
    build.compile("wsfast_core");
    numbers("core.rs", &[&core.join("frame.h"), &core.join("message.h")]);
    numbers("border.rs", &[Path::new(BORDER)]);
    for path in [CORE, BORDER, "src/core_inline.c", "build.rs"] {
        println!("cargo:rerun-if-changed={path}");
    }
}

/// Writes a constant for each `NAME = number` of an enum, and each `#define NAME number`.
fn numbers(target: &str, headers: &[&Path]) {
    let mut constants = String::new();
    for header in headers {
        for line in fs::read_to_string(header).unwrap().lines() {
            let code = line.split("/*").next().unwrap().trim().trim_end_matches(',');
            let words: Vec<_> = code.split_whitespace().collect();
            if let [name, "=", value] | ["#define", name, value] = words[..] {
                if value.parse::<i32>().is_ok() || value.starts_with("0x") {
                    constants += &format!("pub const {name}: std::ffi::c_int = {value};\n");
                }
            }
        }
    }
    fs::write(Path::new(&env::var_os("OUT_DIR").unwrap()).join(target), constants).unwrap();
}
