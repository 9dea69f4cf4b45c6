//! Keywords of JSON Schema and what their values are.

use serde_json::Value;

/// What a keyword's value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keyword {
    /// A schema.
    Schema,
    /// A schema, or in old drafts a list of them.
    Items,
    /// Schemas by name.
    Schemas,
    /// Schemas or lists of names, by name.
    Dependencies,
    /// A list of schemas.
    List,
    /// A count.
    Count,
    /// A number.
    Number,
    /// A number, or in an old draft whether the bound beside it is excluded.
    ExclusiveNumber,
    /// Whether it holds.
    Flag,
    /// A text.
    Text,
    /// Types by name.
    Types,
    /// A list of names.
    Names,
    /// Lists of names, by name.
    NameLists,
    /// A list of any values.
    Values,
    /// Any value.
    Any,
}

/// The keywords that say which values are valid. Any other is an annotation, as JSON Schema has it.
const KEYWORDS: &[(&str, Keyword)] = &[
    ("properties", Keyword::Schemas),
    ("patternProperties", Keyword::Schemas),
    ("additionalProperties", Keyword::Schema),
    ("unevaluatedProperties", Keyword::Schema),
    ("propertyNames", Keyword::Schema),
    ("dependencies", Keyword::Dependencies),
    ("dependentSchemas", Keyword::Schemas),
    ("dependentRequired", Keyword::NameLists),
    ("items", Keyword::Items),
    ("additionalItems", Keyword::Schema),
    ("unevaluatedItems", Keyword::Schema),
    ("prefixItems", Keyword::List),
    ("contains", Keyword::Schema),
    ("minContains", Keyword::Count),
    ("maxContains", Keyword::Count),
    ("uniqueItems", Keyword::Flag),
    ("anyOf", Keyword::List),
    ("oneOf", Keyword::List),
    ("allOf", Keyword::List),
    ("not", Keyword::Schema),
    ("if", Keyword::Schema),
    ("then", Keyword::Schema),
    ("else", Keyword::Schema),
    ("format", Keyword::Text),
    ("type", Keyword::Types),
    ("const", Keyword::Any),
    ("enum", Keyword::Values),
    ("required", Keyword::Names),
    ("minProperties", Keyword::Count),
    ("maxProperties", Keyword::Count),
    ("minItems", Keyword::Count),
    ("maxItems", Keyword::Count),
    ("minLength", Keyword::Count),
    ("maxLength", Keyword::Count),
    ("pattern", Keyword::Text),
    ("minimum", Keyword::Number),
    ("maximum", Keyword::Number),
    ("exclusiveMinimum", Keyword::ExclusiveNumber),
    ("exclusiveMaximum", Keyword::ExclusiveNumber),
    ("multipleOf", Keyword::Number),
];

/// The types of JSON values.
pub(super) const TYPES: [&str; 7] = ["null", "boolean", "integer", "number", "string", "array", "object"];

/// Which keyword a name is. `None` for an annotation.
pub(super) fn keyword(name: &str) -> Option<Keyword> {
    KEYWORDS.iter().find(|(known, _)| *known == name).map(|(_, keyword)| *keyword)
}

/// What a value without schemas should have been. `None` if it is right.
pub(super) fn mistake(keyword: Keyword, value: &Value) -> Option<&'static str> {
    let is_name_list = |value: &Value| value.as_array().is_some_and(|list| list.iter().all(Value::is_string));
    let is_right = match keyword {
        Keyword::Count => value.as_u64().is_some() || value.as_f64().is_some_and(is_whole),
        Keyword::Number => value.is_number(),
        Keyword::ExclusiveNumber => value.is_number() || value.is_boolean(),
        Keyword::Flag => value.is_boolean(),
        Keyword::Text => value.is_string(),
        Keyword::Types => is_type(value) || value.as_array().is_some_and(|list| list.iter().all(is_type)),
        Keyword::Names => is_name_list(value),
        Keyword::NameLists => value.as_object().is_some_and(|lists| lists.values().all(is_name_list)),
        Keyword::Values => value.is_array(),
        Keyword::Any
        | Keyword::Schema
        | Keyword::Items
        | Keyword::Schemas
        | Keyword::Dependencies
        | Keyword::List => true,
    };
    (!is_right).then_some(match keyword {
        Keyword::Count => "a whole number that is not negative",
        Keyword::Number | Keyword::ExclusiveNumber => "a number",
        Keyword::Flag => "true or false",
        Keyword::Types => "null, boolean, integer, number, string, array, object, or a list of these",
        Keyword::Names => "a list of names",
        Keyword::NameLists => "an object of lists of names",
        Keyword::Values => "a list of values",
        _ => "a string",
    })
}

fn is_whole(number: f64) -> bool {
    number >= 0.0 && number.fract() == 0.0 && number < 9e15
}

fn is_type(value: &Value) -> bool {
    value.as_str().is_some_and(|name| TYPES.contains(&name))
}
