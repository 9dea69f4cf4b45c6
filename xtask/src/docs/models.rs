//! docs/models.md: the supported architectures, from `omnibus models --json`.

use serde_json::Value;

const HEAD: &str = "\
# Architectures

<!-- Made from `omnibus models --json`: `cargo xtask docs` writes it. -->

The architecture of a model is the `model_type` in its `config.json`. A config with a field that is not read is refused
with the field's name, so that a variant is never served wrong.

| architecture | what it is | takes |
| --- | --- | --- |
";

/// The page, from the output of the command.
pub fn page(json: &str) -> Result<String, String> {
    let rows: Vec<Value> =
        serde_json::from_str(json).map_err(|error| format!("not a list in JSON: {error}"))?;
    let cell = |row: &Value, key: &str| row[key].as_str().map(|text| text.replace('|', "\\|"));
    let takes = |row: &Value| {
        let inputs = row["inputs"].as_array()?.iter().filter_map(Value::as_str);
        Some(inputs.collect::<Vec<_>>().join(", "))
    };
    let row = |row: &Value| {
        let (name, about) = (cell(row, "architecture")?, cell(row, "about")?);
        Some(format!("| `{name}` | {about} | {} |\n", takes(row)?))
    };
    let rows: Option<String> = rows.iter().map(row).collect();
    let rows =
        rows.ok_or("`omnibus models --json` gave a row without `architecture`, `about` or `inputs`")?;
    Ok(format!("{HEAD}{rows}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_json_is_a_row_of_the_table() {
        let page =
            page(r#"[{"architecture": "llama", "about": "a | b", "inputs": ["text", "image"]}]"#).unwrap();
        assert_eq!(page.strip_prefix(HEAD), Some("| `llama` | a \\| b | text, image |\n"));
    }

    #[test]
    fn a_row_without_a_name_is_an_error() {
        assert!(page("[{\"about\": \"a\"}]").is_err());
    }
}
