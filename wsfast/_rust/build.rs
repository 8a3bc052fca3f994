//! Compiles the parts of wsfast/core that the crate uses, and makes constants and structures of those in C headers: of the
//! core, and of the border. So no number and no field is written twice.

use std::path::Path;
use std::{env, fs};

const CORE: &str = "../core";
const BORDER: &str = "wsfast_rust.h";
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
    build.include(core).file("src/protocol/c_core_inline.c");
    build.compile("wsfast_core");
    translate("core.rs", &[&core.join("utf8.h"), &core.join("frame.h"), &core.join("message.h")]);
    translate("border.rs", &[Path::new(BORDER)]);
    write("prototypes.rs", &prototypes(&without_comments(&fs::read_to_string(BORDER).unwrap())));
    for path in [CORE, BORDER, "src/protocol/c_core_inline.c", "build.rs"] {
        println!("cargo:rerun-if-changed={path}");
    }
}

/// Writes the constants and the structures of C headers, in Rust.
fn translate(target: &str, headers: &[&Path]) {
    let mut rust = String::new();
    for header in headers {
        let c = without_comments(&fs::read_to_string(header).unwrap());
        rust += &(constants(&c) + &structures(&c));
    }
    write(target, &rust);
}

fn write(target: &str, rust: &str) {
    fs::write(Path::new(&env::var_os("OUT_DIR").unwrap()).join(target), rust).unwrap();
}

fn without_comments(c: &str) -> String {
    c.split("/*").enumerate().map(|(i, part)| if i == 0 { part } else { part.split_once("*/").unwrap().1 }).collect()
}

/// A constant for each `NAME = number` of an enum, and each `#define NAME number`.
fn constants(c: &str) -> String {
    let mut rust = String::new();
    for line in c.lines() {
        let words: Vec<_> = line.trim().trim_end_matches(',').split_whitespace().collect();
        if let [name, "=", value] | ["#define", name, value] = words[..] {
            if value.parse::<i32>().is_ok() || value.starts_with("0x") {
                rust += &format!("pub const {name}: std::ffi::c_int = {value};\n");
            }
        }
    }
    rust
}

/// A structure for each `typedef struct { ... } name;`, and its ZERO, in which nothing is set.
fn structures(c: &str) -> String {
    let mut rust = String::new();
    for declaration in c.split("typedef struct").skip(1) {
        let (tag, rest) = declaration.split_once(['{', ';']).unwrap();
        if !declaration[tag.len()..].starts_with('{') {
            continue; // nothing but its name is known
        }
        let (body, rest) = rest.split_once('}').unwrap();
        let name = rest.split(';').next().unwrap().trim();
        if body.contains("(*") {
            rust += &table(name, body);
            continue;
        }
        let (mut fields, mut zero) = (String::new(), String::new());
        for field in body.split(';').map(str::trim).filter(|field| !field.is_empty()) {
            let (field, kind, nothing) = translated(field);
            fields += &format!("pub {field}: {kind}, ");
            zero += &format!("{field}: {nothing}, ");
        }
        rust += &format!(
            "#[repr(C)]\n#[allow(non_camel_case_types)]\n#[derive(Clone, Copy, Debug, PartialEq)]\n\
             pub struct {name} {{ {fields}}}\n\
             impl {name} {{\n#[allow(dead_code)]\npub const ZERO: Self = Self {{ {zero}}};\n}}\n"
        );
    }
    rust
}

/// A structure of pointers to functions.
fn table(name: &str, body: &str) -> String {
    let fields = body.split(';').filter_map(|field| {
        let (result, rest) = field.split_once("(*")?;
        let (name, parameters) = rest.split_once(")(")?;
        Some(format!("pub {name}: {},", signature(result, parameters)))
    });
    format!("#[repr(C)]\n#[allow(non_camel_case_types)]\npub struct {name} {{ {} }}\n", fields.collect::<String>())
}

/// For each function of a header a constant of its type, so that the compiler compares it with the crate's.
fn prototypes(c: &str) -> String {
    let functions = c.split(';').filter(|part| !part.contains(['{', '}']) && !part.contains("(*"));
    let checks = functions.filter_map(|part| {
        let (head, parameters) = part.trim().split_once('(')?;
        let (result, name) = head.split_at(head.rfind([' ', '*'])? + 1);
        Some(format!("const _: {} = {name};\n", signature(result, parameters)))
    });
    checks.collect()
}

fn signature(result: &str, parameters: &str) -> String {
    let parameters = parameters.trim_end_matches(')').split(',').map(str::trim).filter(|one| *one != "void");
    let types: Vec<_> = parameters.map(|parameter| translated(parameter).1).collect();
    let result = if result.trim() == "void" { "()".into() } else { translated(&format!("{} x", result.trim())).1 };
    format!("unsafe extern \"C\" fn({}) -> {result}", types.join(", "))
}

/// The name of a C field, its type in Rust, and the value that is zero.
fn translated(field: &str) -> (&str, String, String) {
    let (kind, name) = field.rsplit_once([' ', '*']).unwrap();
    let element = match kind.trim_start_matches("const ").trim_end_matches([' ', '*']) {
        "uint8_t" => "u8",
        "uint16_t" => "u16",
        "uint32_t" => "u32",
        "uint64_t" => "u64",
        "int64_t" => "i64",
        "size_t" => "usize",
        "int" => "std::ffi::c_int",
        "double" => "f64",
        "char" if name.contains('[') => "u8",
        "char" => "std::ffi::c_char",
        "void" => "std::ffi::c_void",
        nested if nested.starts_with("wsf_") => return (name, nested.into(), format!("{nested}::ZERO")),
        known if known.starts_with("wst_") => known,
        other => panic!("{other}, the type of {name}, has no translation"),
    };
    if let Some((name, size)) = name.split_once('[') {
        let size = size.trim_end_matches(']');
        return (name, format!("[{element}; {size}]"), format!("[0; {size}]"));
    }
    if field.contains('*') {
        let (constness, null) = if field.starts_with("const ") { ("const", "null") } else { ("mut", "null_mut") };
        let outer = "*mut ".repeat(field.matches('*').count() - 1);
        return (name, format!("{outer}*{constness} {element}"), format!("std::ptr::{null}()"));
    }
    (name, element.into(), if element == "f64" { "0.0".into() } else { "0".into() })
}
