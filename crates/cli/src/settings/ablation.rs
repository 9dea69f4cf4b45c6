//! Parts of the server that `bench report` switches off.

/// A part that can be switched off. Each is one set of flags or variables of `serve`.
#[derive(Debug, PartialEq, Eq)]
pub struct Ablation {
    /// Its name on the command line.
    pub name: &'static str,
    /// What `serve` gets.
    pub flags: &'static [&'static str],
    /// What its environment gets.
    pub variables: &'static [(&'static str, &'static str)],
}

const fn flags(name: &'static str, flags: &'static [&'static str]) -> Ablation {
    Ablation { name, flags, variables: &[] }
}

const fn variables(name: &'static str, variables: &'static [(&'static str, &'static str)]) -> Ablation {
    Ablation { name, flags: &[], variables }
}

/// Every ablation.
pub const ABLATIONS: &[Ablation] = &[
    flags("prefix-cache", &["--prefix-cache", "off"]),
    // A prompt of up to so many tokens is one chunk: `fcfs` has no targets that make it smaller.
    flags("chunked-prefill", &["--schedule", "fcfs", "--max-num-batched-tokens", "131072"]),
    flags("fair", &["--schedule", "fcfs"]),
    flags("spec", &["--draft", "off"]),
    variables("graphs", &[("OMNIBUS_KERNELS", "launch")]),
    variables("kernels", &[("OMNIBUS_KERNELS", "mlx")]),
    flags("isolation", &["--in-process"]),
    flags("media-cache", &["--media-cache-memory", "0"]),
];

impl Ablation {
    /// The one of this name. Fails with the names that there are.
    pub fn named(name: &str) -> Result<&'static Self, String> {
        ABLATIONS.iter().find(|ablation| ablation.name == name).ok_or_else(|| {
            let names: Vec<&str> = ABLATIONS.iter().map(|ablation| ablation.name).collect();
            format!("there is no `{name}`; choose from {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_ablation_is_refused_with_the_names() {
        let error = Ablation::named("magic").unwrap_err();
        assert!(error.contains("`magic`") && error.contains("prefix-cache, chunked-prefill"), "{error}");
        assert_eq!(Ablation::named("spec").map(|ablation| ablation.flags), Ok(&["--draft", "off"][..]));
    }
}
