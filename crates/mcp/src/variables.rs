//! Variables of the environment in a configuration: `${NAME}`, `${env:NAME}` and `${NAME:-default}`.

/// The text with its variables replaced. Fails with a line that names a variable that is not set.
pub fn expanded(text: &str, lookup: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let (mut done, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once("${") {
        done.push_str(before);
        let (inner, after) = after.split_once('}').ok_or_else(|| "has a `${` without a `}`".to_owned())?;
        let inner = inner.strip_prefix("env:").unwrap_or(inner);
        let (name, default) = match inner.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inner, None),
        };
        let value = lookup(name).or(default.map(str::to_owned));
        done.push_str(&value.ok_or_else(|| format!("needs the variable {name}, which is not set"))?);
        rest = after;
    }
    done.push_str(rest);
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_have_values_or_defaults() {
        let lookup = |name: &str| (name == "A").then(|| "1".to_owned());
        let check = |text: &str| expanded(text, &lookup);
        assert_eq!(check("x ${A} ${env:A} ${B:-two} $A").as_deref(), Ok("x 1 1 two $A"));
        assert_eq!(check("${B}").unwrap_err(), "needs the variable B, which is not set");
        assert_eq!(check("${A").unwrap_err(), "has a `${` without a `}`");
    }
}
