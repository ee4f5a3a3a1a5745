//! The files of a crate as modules: what each imports, defines and hands on.

use std::collections::BTreeMap;

use crate::source::Source;

/// The names that lead from a crate to a module or an item.
pub(super) type Names = Vec<String>;

/// One file of a crate.
pub(super) struct Module<'a> {
    pub(super) file: &'a str,
    /// Its code without tests.
    pub(super) code: String,
    /// What it imports.
    pub(super) imports: Vec<Import>,
    /// By the name under which it has something, for others or for its children: what that is.
    handed_on: BTreeMap<String, Names>,
}

/// A name that a file takes from another one.
pub(super) struct Import {
    /// The path from the crate's root.
    pub(super) path: Names,
    /// The name that it has here.
    pub(super) name: String,
    /// The line that says so.
    pub(super) line: usize,
}

/// The files of one crate, by the names that lead to them.
pub(super) type Crate<'a> = BTreeMap<Names, Module<'a>>;

/// The crates of all files, by their folders.
pub(super) fn crates<'a>(sources: &[(&'a str, &Source<'_>)]) -> BTreeMap<&'a str, Crate<'a>> {
    let mut crates: BTreeMap<&str, Crate<'_>> = BTreeMap::new();
    for (file, source) in sources {
        let Some((folder, inside)) = file.split_once("/src/") else { continue };
        let module = module_of(inside);
        let read = Module::read(file, &module, source);
        crates.entry(folder).or_default().insert(module, read);
    }
    crates
}

/// The names that lead to the file at `inside` of a crate's `src`.
fn module_of(inside: &str) -> Names {
    let mut names: Names = inside.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if ["lib", "main", "mod"].contains(&names.last().map_or("", String::as_str)) {
        names.pop();
    }
    names
}

impl<'a> Module<'a> {
    fn read(file: &'a str, module: &Names, source: &Source<'_>) -> Self {
        let code: String = source
            .code
            .char_indices()
            .map(|(at, char)| if source.is_test(at) && char != '\n' { ' ' } else { char })
            .collect();
        let (mut imports, mut handed_on) = (Vec::new(), BTreeMap::new());
        for (at, _) in code.match_indices("use ") {
            let line_begin = code[..at].rfind('\n').map_or(0, |newline| newline + 1);
            let before = code[line_begin..at].trim();
            if !(before.is_empty() || before.starts_with("pub")) {
                continue;
            }
            let Some(end) = code[at..].find(';') else { continue };
            for leaf in leaves(&code[at + "use ".len()..at + end]) {
                let (path, alias) = leaf.split_once(" as ").unwrap_or((&leaf, ""));
                let Some(path) = from_root(module, path.trim()) else { continue };
                let alias = alias.trim();
                let last = path.last().map_or("", String::as_str);
                let name = if alias.is_empty() { last } else { alias }.to_owned();
                // A child may take what its parent imports for itself.
                handed_on.insert(name.clone(), path.clone());
                imports.push(Import { path, name, line: source.line(at) });
            }
        }
        imports.extend(named_in_place(module, &code).map(|(path, at)| {
            let name = path.last().cloned().unwrap_or_default();
            Import { path, name, line: source.line(at) }
        }));
        Self { file, code, imports, handed_on }
    }

    /// Whether it defines `name` itself.
    pub(super) fn defines(&self, name: &str) -> bool {
        self.definition(name).is_some()
    }

    /// The line that defines `name`, from 1; the first one if none does.
    pub(super) fn line_of(&self, name: &str) -> usize {
        1 + self.code[..self.definition(name).unwrap_or(0)].matches('\n').count()
    }

    fn definition(&self, name: &str) -> Option<usize> {
        let kinds = ["fn", "struct", "enum", "trait", "const", "static", "type", "union"];
        kinds.iter().find_map(|kind| {
            let words = format!("{kind} {name}");
            let mut places = self.code.match_indices(&words).map(|(at, _)| at);
            places.find(|at| {
                let next = self.code[at + words.len()..].chars().next();
                !next.is_some_and(|next| next.is_alphanumeric() || next == '_')
            })
        })
    }
}

/// The paths that begin with `crate::` or `super::` and stand in the code itself
/// (`crate::cli::Format`), with their offsets. Paths of imports are among them up to their first
/// brace, which does no harm.
fn named_in_place(module: &Names, code: &str) -> impl Iterator<Item = (Names, usize)> {
    let starts = ["crate::", "super::"].into_iter().flat_map(|from| code.match_indices(from));
    starts.filter_map(|(at, _)| {
        let before = code[..at].trim_end();
        let is_path = |char: char| char.is_alphanumeric() || char == '_' || char == ':';
        // The rest of a longer path, a macro's own crate, or where an item may be seen from.
        if code[..at].ends_with([':', '$']) || before.ends_with("(in") {
            return None;
        }
        let end = code[at..].find(|char| !is_path(char)).map_or(code.len(), |len| at + len);
        let path = from_root(module, code[at..end].trim_end_matches(':'))?;
        Some((path, at))
    })
}

/// The paths of a use tree, one for each leaf.
fn leaves(tree: &str) -> Vec<String> {
    let tree = tree.split_whitespace().collect::<Vec<_>>().join(" ");
    let Some((before, inside)) = tree.split_once('{') else { return vec![tree] };
    let inside = inside.trim_end().strip_suffix('}').unwrap_or(inside);
    let (mut parts, mut depth) = (vec![String::new()], 0_usize);
    for char in inside.chars() {
        depth += usize::from(char == '{');
        depth = depth.saturating_sub(usize::from(char == '}'));
        match char {
            ',' if depth == 0 => parts.push(String::new()),
            char => parts.last_mut().into_iter().for_each(|part| part.push(char)),
        }
    }
    let parts = parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty());
    parts.flat_map(leaves).map(|leaf| format!("{}{leaf}", before.trim())).collect()
}

/// The path from the crate's root that `path` means in `module`; `None` if it leads elsewhere.
pub(super) fn from_root(module: &Names, path: &str) -> Option<Names> {
    let mut names = path.split("::").map(str::trim);
    let mut from = match names.next()? {
        "crate" => Names::new(),
        "self" => module.clone(),
        "super" => module[..module.len().checked_sub(1)?].to_vec(),
        // A child, or another crate: who resolves it finds no file of another crate.
        name => [module.clone(), vec![name.to_owned()]].concat(),
    };
    for name in names {
        match name {
            "super" => {
                from.pop()?;
            }
            "self" => {}
            name => from.push(name.to_owned()),
        }
    }
    Some(from)
}

/// What a path leads to.
pub(super) enum Target {
    /// A file as a module.
    Module(Names),
    /// An item: its file, and the name that the file gives it.
    Item(Names, String),
}

/// What `path` leads to, re-exports followed; `None` if no file of the crate has it.
pub(super) fn resolve(files: &Crate<'_>, path: &Names, depth: usize) -> Option<Target> {
    let length = (0..=path.len()).rev().find(|&length| files.contains_key(&path[..length]))?;
    let (module, rest) = (path[..length].to_vec(), &path[length..]);
    let Some(name) = rest.first() else { return Some(Target::Module(module)) };
    let here = &files[&module];
    if module.is_empty() && !here.defines(name) && !here.handed_on.contains_key(name) {
        return None;
    }
    match here.handed_on.get(name) {
        Some(on) if !here.defines(name) && depth < files.len() => {
            resolve(files, &[on.clone(), rest[1..].to_vec()].concat(), depth + 1)
        }
        _ => Some(Target::Item(module, name.clone())),
    }
}
