//! Links libgcc's unwinder into rlock. As a shared library it takes about a tenth of an uncontended run to be found, mapped,
//! relocated and initialised, and rlock needs it after a panic only. glibc stays shared: name look-ups load plugins.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = |what: &str| std::env::var(format!("CARGO_CFG_TARGET_{what}")).unwrap_or_default();
    if target("OS") == "linux" && target("ENV") == "gnu" {
        // Comes with every gcc, beside the start-up code that the linker takes from there anyway.
        println!("cargo::rustc-link-lib=static:-bundle=gcc_eh");
    }
}
