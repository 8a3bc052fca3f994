//! Compiles the parts of wsfast/core that the crate uses: headers, masks, mask keys and UTF-8.

use std::path::Path;

fn main() {
    let core = Path::new("../../core");
    let mut build = cc::Build::new();
    build.std("c11").warnings(true).extra_warnings(true).define("NDEBUG", None);
    // SIMD code at opt-level 0 would make debug builds useless.
    build.opt_level(3);
    for name in ["entropy.c", "frame.c", "mask.c", "mask_avx2.c", "mask_avx512.c", "mask_neon.c", "utf8.c"] {
        build.file(core.join(name));
    }
    build.include(core).file("src/frame_header.c");
    build.compile("wsfast_core");
    println!("cargo:rerun-if-changed=../../core");
    println!("cargo:rerun-if-changed=src/frame_header.c");
    println!("cargo:rerun-if-changed=build.rs");
}
