//! The description of all endpoints, as OpenAPI 3.1 at `/openapi.json`, made from the values that the routes are made from.

use std::{collections::BTreeMap, sync::Arc};

use axum::http::StatusCode;
use serde_json::{Map, Value, json};
use server::state::State;

use crate::{
    endpoint::{self, Described, Endpoint, JSON},
    problems::PROBLEM,
};

/// The endpoint of the description.
pub(crate) const DESCRIBED: Described = Described {
    method: "GET",
    path: "/openapi.json",
    role: None,
    about: "This description.",
    takes: None,
    status: 200,
    kind: JSON,
    answers: Some("Description"),
    problems: &[],
};

/// What answers with a description.
pub(crate) fn endpoint<S: State + 'static>(document: Value) -> Endpoint<S> {
    let document = Arc::new(document);
    Endpoint::new(DESCRIBED, move |_, _| {
        let document = Arc::clone(&document);
        async move { endpoint::json(StatusCode::OK, &*document) }
    })
}

/// The description of endpoints, with the schemas that they name.
pub(crate) fn document(all: &[Described], schemas: &BTreeMap<&'static str, Value>) -> Value {
    let mut paths = Map::new();
    for described in all {
        let path = paths.entry(described.path).or_insert_with(|| json!({}));
        path[described.method.to_lowercase()] = operation(described);
    }
    let mut schemas: Map<String, Value> =
        schemas.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    schemas.insert("Problem".to_owned(), problem());
    schemas.insert("Description".to_owned(), json!({ "type": "object", "required": ["openapi", "info", "paths"] }));
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Keyhush",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "What operators of a Keyhush server see and do. Devices speak another protocol, under /v1.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer", "description": "A token of keyhush access create." } },
        },
    })
}

fn operation(described: &Described) -> Value {
    let id = format!("{} {}", described.method.to_lowercase(), described.path);
    let mut operation = json!({ "operationId": id, "summary": described.about, "responses": responses(described) });
    let parameters: Vec<Value> = parameters(described.path)
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }))
        .collect();
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    if let Some(name) = described.takes {
        operation["requestBody"] = json!({ "required": true, "content": { JSON: { "schema": refers(name) } } });
    }
    if let Some(role) = described.role {
        operation["security"] = json!([{ "token": [] }]);
        operation["x-role"] = role.word().into();
    }
    operation
}

/// The names in braces of a path.
fn parameters(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

fn responses(described: &Described) -> Value {
    let content = match described.answers {
        Some(name) => json!({ described.kind: { "schema": refers(name) } }),
        None => json!({ described.kind: {} }),
    };
    let mut responses = Map::new();
    responses.insert(described.status.to_string(), json!({ "description": "Done.", "content": content }));
    let of_all: &[u16] = if described.role.is_some() { &[401, 403, 500, 503] } else { &[500, 503] };
    let of_bodies: &[u16] = if described.takes.is_some() { &[400, 408, 413, 415] } else { &[] };
    let of_paths: &[u16] = if described.path.contains('{') { &[400] } else { &[] };
    for status in [of_all, of_bodies, of_paths, described.problems].concat() {
        let reason = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
        let content = json!({ PROBLEM: { "schema": refers("Problem") } });
        responses.insert(status.to_string(), json!({ "description": reason.unwrap_or("Refused"), "content": content }));
    }
    responses.into()
}

fn refers(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

/// Of every refusal.
fn problem() -> Value {
    json!({
        "type": "object",
        "description": "Why a request is refused, and what to do next (RFC 9457).",
        "required": ["type", "title", "status", "detail", "next", "request"],
        "additionalProperties": false,
        "properties": {
            "type": { "type": "string", "pattern": "^urn:keyhush:problem:[a-z-]+$" },
            "title": { "type": "string" },
            "status": { "type": "integer", "minimum": 400, "maximum": 599 },
            "detail": { "type": "string" },
            "next": { "type": "string" },
            "request": { "type": "string", "pattern": "^[0-9a-f]{16,}$" },
        },
    })
}
