// The request types of OpenAI's and Anthropic's SDKs of JavaScript, as cases for request_types.py: prints a list of
// [route, field, value], each optional field with each kind of value that its type allows.
//
// usage: node request_types.mjs, where the SDKs and typescript are installed

import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";

// Values of one kind, and depth of nested types.
const VALUES_MAX = 12;
const DEPTH_MAX = 5;
const TYPES = [
  ["/v1/chat/completions", "openai", "resources/chat/completions/completions.d.ts", "ChatCompletionCreateParamsNonStreaming"],
  ["/v1/completions", "openai", "resources/completions.d.ts", "CompletionCreateParamsNonStreaming"],
  ["/v1/responses", "openai", "resources/responses/responses.d.ts", "ResponseCreateParamsNonStreaming"],
  ["/v1/messages", "@anthropic-ai/sdk", "resources/messages/messages.d.ts", "MessageCreateParamsNonStreaming"],
  ["/v1/messages/count_tokens", "@anthropic-ai/sdk", "resources/messages/messages.d.ts", "MessageCountTokensParams"],
];

const packages = join(dirname(fileURLToPath(import.meta.url)), "node_modules");
const files = TYPES.map(([, sdk, file]) => join(packages, sdk, file));
const program = ts.createProgram(files, { strict: true, skipLibCheck: true, module: ts.ModuleKind.NodeNext });
const types = program.getTypeChecker();

/** The properties of an object type that a client sets: no functions. */
function properties(type) {
  return types.getPropertiesOfType(type).map((property) => {
    const kind = types.getNonNullableType(types.getTypeOfSymbol(property));
    return { name: property.name, kind, optional: Boolean(property.flags & ts.SymbolFlags.Optional) };
  });
}

/** Values of a type: each alternative, and of objects the required fields, with each optional one alone. */
function values(type, depth) {
  if (depth > DEPTH_MAX) return [];
  if (type.isUnion()) {
    const found = type.types.flatMap((one) => values(one, depth).slice(0, 4));
    return found.slice(0, 4 * VALUES_MAX);
  }
  if (type.isStringLiteral() || type.isNumberLiteral()) return [type.value];
  if (type.flags & ts.TypeFlags.BooleanLiteral) return [types.typeToString(type) === "true"];
  if (type.flags & (ts.TypeFlags.Null | ts.TypeFlags.Undefined)) return [];
  // `string & {}` is any text beside known ones.
  const parts = type.isIntersection() ? type.types : [type];
  if (parts.some((part) => part.flags & ts.TypeFlags.StringLike)) return ["x"];
  if (type.flags & ts.TypeFlags.NumberLike) return [1];
  if (type.flags & ts.TypeFlags.Unknown) return ["x"];
  if (types.isArrayType(type)) {
    return values(types.getTypeArguments(type)[0], depth + 1).map((value) => [value]);
  }
  if (types.getIndexInfosOfType(type).length && !properties(type).length) return [{ type: "object", properties: {} }];
  return type.flags & (ts.TypeFlags.Object | ts.TypeFlags.Intersection) ? objects(type, depth) : [];
}

function objects(type, depth) {
  const base = {};
  const all = properties(type);
  for (const { name, kind } of all.filter((property) => !property.optional)) {
    const found = values(kind, depth + 1);
    if (!found.length) return [];
    base[name] = found[0];
  }
  const optional = all.filter((property) => property.optional);
  const more = optional.flatMap(({ name, kind }) =>
    values(kind, depth + 1).slice(0, 2).map((value) => ({ ...base, [name]: value })));
  return [base, ...more];
}

const cases = TYPES.flatMap(([path, , , name], index) => {
  const source = program.getSourceFile(files[index]);
  const symbol = types.getExportsOfModule(types.getSymbolAtLocation(source)).find((one) => one.name === name);
  return properties(types.getDeclaredTypeOfSymbol(symbol)).flatMap((property) => {
    const found = values(property.kind, 0);
    // A field without a value is reported by the reader.
    return (found.length ? found : [null]).map((value) => [path, property.name, value]);
  });
});
console.log(JSON.stringify(cases));
