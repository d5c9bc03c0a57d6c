//! numpy's `.npz`: a zip archive of `.npy` files.

use super::mapped::{map, MappedBytes};
use super::{byte_size, failed, npy, unsupported, Weights};
use relax_ir::{Constant, Diagnostic};
use std::io::{Cursor, Read, Write};
use std::path::Path;
use std::sync::Arc;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

/// Opens an `.npz` file: arrays by name (without `.npy`), in the order of the archive.
pub fn open_npz(path: &Path) -> Result<Weights, Diagnostic> {
    let map = map(path)?;
    let mut archive =
        ZipArchive::new(Cursor::new(&map[..])).map_err(|e| failed(path, format!("not an .npz file: {e}")))?;
    let mut out = vec![];
    for i in 0..archive.len() {
        let mut entry = archive.by_index(i).map_err(|e| failed(path, e))?;
        if entry.is_dir() {
            continue;
        }
        let name = entry.name().strip_suffix(".npy").unwrap_or(entry.name()).to_string();
        let wrong = |why: String| failed(path, format!("array `{name}`: {why}"));
        if entry.compression() == CompressionMethod::Stored {
            let start = usize::try_from(entry.data_start()).ok();
            let range = start.zip(usize::try_from(entry.size()).ok()).and_then(|(s, n)| Some(s..s.checked_add(n)?));
            let range = range.filter(|r| r.end <= map.len()).ok_or_else(|| wrong("outside of the file".into()))?;
            // What is read through the archive is compared by it, what is mapped is compared here.
            if crc32fast::hash(&map[range.clone()]) != entry.crc32() {
                return Err(wrong("its checksum is wrong: the file is damaged".into()));
            }
            let header = npy::header(&map[range.clone()]).map_err(wrong)?;
            if !header.big_endian && !header.fortran {
                let data = range.start + header.data..range.end;
                if byte_size(&header.shape, header.dtype.bytes()) != Some(data.len()) {
                    return Err(wrong("its data does not fit its shape".into()));
                }
                let data = Arc::new(MappedBytes { map: map.clone(), range: data });
                out.push((name.clone(), Constant { dtype: header.dtype, shape: header.shape, data }));
                continue;
            }
        }
        let mut bytes = vec![];
        entry.read_to_end(&mut bytes).map_err(|e| wrong(e.to_string()))?;
        let header = npy::header(&bytes).map_err(wrong)?;
        let data = bytes.split_off(header.data);
        if byte_size(&header.shape, header.dtype.bytes()) != Some(data.len()) {
            return Err(wrong("its data does not fit its shape".into()));
        }
        let data = npy::to_row_major(&header, data);
        out.push((name.clone(), Constant::new(header.dtype, header.shape, data)));
    }
    Ok(out)
}

/// The bytes of an `.npz` file, stored without compression; the same tensors give the same bytes.
pub fn npz_bytes(tensors: &[(String, Constant)]) -> Result<Vec<u8>, String> {
    let mut zip = ZipWriter::new(Cursor::new(vec![]));
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Stored)
        .last_modified_time(zip::DateTime::default());
    for (name, c) in tensors {
        let options = options.large_file(c.bytes().len() >= u32::MAX as usize / 2);
        zip.start_file(format!("{name}.npy"), options).map_err(|e| e.to_string())?;
        let header = npy::write_header(c.dtype, &c.shape)?;
        zip.write_all(&header).and_then(|_| zip.write_all(c.bytes())).map_err(|e| e.to_string())?;
    }
    Ok(zip.finish().map_err(|e| e.to_string())?.into_inner())
}

/// Writes an `.npz` file, whole or not at all. bfloat16 is stored as numpy does it, as two bytes without a type.
pub fn write_npz(path: &Path, tensors: &[(String, Constant)]) -> Result<(), Diagnostic> {
    let bytes = npz_bytes(tensors).map_err(|e| unsupported(path, e))?;
    let name = path.file_name().ok_or_else(|| failed(path, "this names no file"))?;
    let mut part = name.to_os_string();
    part.push(format!(".{}.part", std::process::id()));
    let part = path.with_file_name(part);
    let written = std::fs::write(&part, bytes).and_then(|_| std::fs::rename(&part, path));
    written.map_err(|e| {
        let _ = std::fs::remove_file(&part);
        failed(path, e)
    })
}
