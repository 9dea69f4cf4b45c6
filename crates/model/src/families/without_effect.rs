//! Fields of configs that change nothing in a family's network, so that it need not read them.

/// Rows of model types, fields and the reason.
const TABLE: &str = include_str!("without_effect.tsv");

/// Fields without effect of a model type, in the config itself or in its `text_config`.
pub(super) fn fields(model_type: &str) -> impl Iterator<Item = &'static str> {
    let rows = TABLE.lines().filter_map(|row| row.split_once('\t'));
    let of_type = rows.filter(move |(types, _)| types.split(',').any(|name| name == model_type));
    of_type.flat_map(|(_, rest)| rest.split('\t').next().unwrap_or_default().split(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_of_types_that_are_served_and_has_a_reason() {
        for row in TABLE.lines() {
            let columns: Vec<&str> = row.split('\t').collect();
            assert_eq!(columns.len(), 3, "{row}");
            let (types, fields, reason) = (columns[0], columns[1], columns[2]);
            assert!(!fields.is_empty() && !reason.is_empty(), "{row}");
            for name in types.split(',') {
                assert!(
                    crate::families::FAMILIES.iter().any(|family| family.model_type == name),
                    "{name}: {row}"
                );
            }
        }
        assert!(
            super::fields("gptj").any(|field| field == "rotary")
                && super::fields("llama").all(|field| field != "rotary")
        );
    }
}
