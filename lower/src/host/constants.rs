//! The data of constants, and tensors over it.

use super::build::Pool;
use super::check_tensor::dtype_word;
use super::weights::External;
use crate::relayout::{same, sample};
use fnv::FnvHashMap;
use relax_ir::abi::AbiLayout;
use relax_ir::flat::{DataBytes, FlatData, Linkage};
use relax_ir::Constant;

/// Where the data of a constant is.
#[derive(Clone, Debug)]
pub enum Stored {
    /// In the read-only data of the library.
    Symbol(String),
    /// At an offset in the weights file.
    External(u64),
}

/// Every constant of a program once.
pub struct Constants {
    prefix: String,
    pub external: Option<External>,
    /// With where its data is.
    pub list: Vec<(Constant, Stored)>,
    by_hash: FnvHashMap<u64, Vec<usize>>,
    tensors: FnvHashMap<String, String>,
}

impl Constants {
    pub fn new(prefix: &str, external: bool) -> Constants {
        Constants {
            prefix: prefix.to_string(),
            external: external.then(External::default),
            list: vec![],
            by_hash: FnvHashMap::default(),
            tensors: FnvHashMap::default(),
        }
    }

    /// Bytes of all constants.
    pub fn bytes(&self) -> u64 {
        self.list.iter().map(|(c, _)| c.size() as u64).sum()
    }

    /// Bytes that these would add.
    pub fn missing<'a>(&self, constants: impl Iterator<Item = &'a Constant>) -> u64 {
        let mut new: Vec<&Constant> = vec![];
        for c in constants {
            let alike = self.by_hash.get(&sample(c)).into_iter().flatten();
            if !alike.into_iter().any(|&i| same(&self.list[i].0, c)) && !new.iter().any(|n| same(n, c)) {
                new.push(c);
            }
        }
        new.iter().map(|c| c.size() as u64).sum()
    }

    /// Where a constant's data is; equal constants share one place.
    pub fn place(&mut self, c: &Constant) -> Stored {
        self.add(c, true)
    }

    /// The symbol of a constant's data, which stays in the library.
    pub fn symbol(&mut self, c: &Constant) -> String {
        match self.add(c, false) {
            Stored::Symbol(s) => s,
            // Never given out for what stays in the library.
            Stored::External(_) => String::new(),
        }
    }

    fn add(&mut self, c: &Constant, external: bool) -> Stored {
        let alike = self.by_hash.entry(sample(c)).or_default();
        let serves = |&&i: &&usize| {
            let (known, stored) = &self.list[i];
            same(known, c) && (external || matches!(stored, Stored::Symbol(_)))
        };
        if let Some(&i) = alike.iter().find(serves) {
            return self.list[i].1.clone();
        }
        let at = self.external.as_mut().filter(|_| external).and_then(|e| e.place(c));
        let stored = match at {
            Some(at) => Stored::External(at),
            None => Stored::Symbol(format!("{}__w{}", self.prefix, self.list.len())),
        };
        alike.push(self.list.len());
        self.list.push((c.clone(), stored.clone()));
        stored
    }

    /// The symbol of a read-only `DLTensor` over a constant.
    pub fn tensor(&mut self, c: &Constant, abi: AbiLayout, pool: &mut Pool) -> String {
        let data = self.symbol(c);
        let key = format!("{data} {} {:?}", c.dtype, c.shape);
        if let Some(s) = self.tensors.get(&key) {
            return s.clone();
        }
        let symbol = format!("{}__t{}", self.prefix, self.tensors.len());
        let head = abi.tensor_size as usize;
        let mut bytes = vec![0u8; head];
        let mut put = |at: i64, word: i32| bytes[at as usize..at as usize + 4].copy_from_slice(&word.to_le_bytes());
        // kDLCPU
        put(abi.pointer as i64, 1);
        put(abi.tensor_ndim, c.shape.len() as i32);
        put(abi.tensor_dtype, dtype_word(c.dtype));
        bytes.extend(c.shape.iter().flat_map(|d| d.to_le_bytes()));
        pool.data.push(FlatData {
            symbol: symbol.clone(),
            align: 8,
            bytes: DataBytes::Owned(bytes),
            relocs: vec![(abi.tensor_data as u32, data, 0), (abi.tensor_shape as u32, symbol.clone(), head as i64)],
            linkage: Linkage::Local,
        });
        self.tensors.insert(key, symbol.clone());
        symbol
    }
}
