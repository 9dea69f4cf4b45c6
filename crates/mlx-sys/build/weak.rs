//! Makes the shim's references to libmlx weak, so that a program which was linked without libmlx starts without it.
//!
//! Invariant: only references to what libmlx exports change: any other missing function still fails the link.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use object::elf::{FileHeader64, SHT_SYMTAB, STB_GLOBAL, STB_WEAK, Sym64};
use object::read::archive::ArchiveFile;
use object::read::elf::{FileHeader as _, SectionHeader as _, Sym as _};
use object::{Endianness, File, Object as _, ObjectSymbol as _};

/// Part of the mangled names of all functions and types of MLX.
const NAMESPACE: &[u8] = b"3mlx4core";
/// Where a symbol has its binding and its type.
const INFO_OFFSET: usize = std::mem::offset_of!(Sym64<Endianness>, st_info);

/// Changes the archive of the shim in place. Returns how many references are weak now.
pub fn weaken(archive: &Path, library: &Path) -> Result<usize, String> {
    let read =
        |path: &Path| fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()));
    let (mut bytes, library_bytes) = (read(archive)?, read(library)?);
    let exported = exported(&library_bytes).map_err(|error| format!("{}: {error}", library.display()))?;
    let places = places(&bytes, &exported).map_err(|error| format!("{}: {error}", archive.display()))?;
    for place in &places {
        if let Some(info) = bytes.get_mut(*place) {
            *info = STB_WEAK << 4 | *info & 0xf;
        }
    }
    fs::write(archive, bytes).map_err(|error| format!("cannot write {}: {error}", archive.display()))?;
    Ok(places.len())
}

/// The names of MLX that a library defines.
fn exported(library: &[u8]) -> object::Result<BTreeSet<Vec<u8>>> {
    let file = File::parse(library)?;
    let names = file.dynamic_symbols().filter(|symbol| symbol.is_definition());
    let names =
        names.map(|symbol| symbol.name_bytes().map(<[u8]>::to_vec)).collect::<object::Result<Vec<_>>>()?;
    Ok(names.into_iter().filter(|name| name.windows(NAMESPACE.len()).any(|part| part == NAMESPACE)).collect())
}

/// Where the members of an archive have the bindings of references to these names.
fn places(archive: &[u8], names: &BTreeSet<Vec<u8>>) -> object::Result<Vec<usize>> {
    let mut places = Vec::new();
    for member in ArchiveFile::parse(archive)?.members() {
        let member = member?;
        let start = member.file_range().0 as usize;
        places.extend(references(member.data(archive)?, names)?.into_iter().map(|place| start + place));
    }
    Ok(places)
}

fn references(object: &[u8], names: &BTreeSet<Vec<u8>>) -> object::Result<Vec<usize>> {
    let header = FileHeader64::<Endianness>::parse(object)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, object)?;
    let symbols = sections.symbols(endian, object, SHT_SYMTAB)?;
    let start = sections.section(symbols.section())?.sh_offset(endian) as usize;
    let mut places = Vec::new();
    for (index, symbol) in symbols.iter().enumerate() {
        let is_reference = symbol.is_undefined(endian) && symbol.st_bind() == STB_GLOBAL;
        if is_reference && names.contains(symbol.name(endian, symbols.strings())?) {
            places.push(start + index * size_of::<Sym64<Endianness>>() + INFO_OFFSET);
        }
    }
    Ok(places)
}
