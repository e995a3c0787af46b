//! The keys and values of tokens that were seen, by layer, in memory that grows by pages.

use candle_core::{Result, Tensor};

/// Tokens that a page has room for.
const PAGE: usize = 256;

/// What attention remembers of a text. A new one is empty.
///
/// ```
/// let mut cache = openmps_candle::Cache::new(30).with_window(4096);
/// assert_eq!(cache.tokens(), 0);
/// cache.clear();
/// ```
#[derive(Clone, Debug)]
pub struct Cache {
    layers: Vec<Option<(Store, Store)>>,
    tokens: usize,
    window: Option<usize>,
}

impl Cache {
    /// For a model of so many layers.
    ///
    /// ```
    /// openmps_candle::Cache::new(2);
    /// ```
    pub fn new(layers: usize) -> Cache {
        Cache { layers: vec![None; layers], tokens: 0, window: None }
    }

    /// Each token attends to itself and those before it, so many in all, whether a text is read at once or token by token. Older ones are kept.
    ///
    /// ```
    /// openmps_candle::Cache::new(2).with_window(128);
    /// ```
    pub fn with_window(mut self, tokens: usize) -> Cache {
        self.window = Some(tokens.max(1));
        self
    }

    /// Tokens that were seen.
    ///
    /// ```
    /// assert_eq!(openmps_candle::Cache::new(2).tokens(), 0);
    /// ```
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Forgets all; the memory is kept.
    ///
    /// ```
    /// openmps_candle::Cache::new(2).clear();
    /// ```
    pub fn clear(&mut self) {
        self.tokens = 0;
    }

    /// Adds keys and values [1, heads, new tokens, size] to a layer; all that its queries attend to.
    pub(super) fn extend(&mut self, layer: usize, keys: &Tensor, values: &Tensor) -> Result<(Tensor, Tensor)> {
        let (seen, new) = (self.tokens, keys.dim(2)?);
        let slot = &mut self.layers[layer];
        let (stored_keys, stored_values) = match slot {
            Some(stores) => stores,
            None => slot.insert((Store::like(keys)?, Store::like(values)?)),
        };
        stored_keys.put(keys, seen)?;
        stored_values.put(values, seen)?;
        let count = self.window.map_or(seen + new, |window| (seen + new).min(window + new - 1));
        let part = |store: &Store| store.memory.narrow(2, seen + new - count, count);
        Ok((part(stored_keys)?, part(stored_values)?))
    }

    /// How many tokens one attends to at most.
    pub(super) fn window(&self) -> Option<usize> {
        self.window
    }

    /// Counts tokens that every layer has been given.
    pub(super) fn advance(&mut self, tokens: usize) {
        self.tokens += tokens;
    }
}

/// Keys or values of one layer: [1, heads, room, size].
#[derive(Clone, Debug)]
struct Store {
    memory: Tensor,
}

impl Store {
    fn like(tensor: &Tensor) -> Result<Store> {
        let (batch, heads, _, size) = tensor.dims4()?;
        Ok(Store { memory: Tensor::zeros((batch, heads, PAGE, size), tensor.dtype(), tensor.device())? })
    }

    /// Writes what is new behind what was seen, in more pages where it does not fit.
    fn put(&mut self, new: &Tensor, seen: usize) -> Result<()> {
        let (batch, heads, count, size) = new.dims4()?;
        let room = self.memory.dim(2)?;
        if seen + count > room {
            // Half as much again, so that a long text is copied a few times only.
            let room = (seen + count).max(room + room / 2).next_multiple_of(PAGE);
            let memory = Tensor::zeros((batch, heads, room, size), new.dtype(), new.device())?;
            memory.slice_set(&self.memory.narrow(2, 0, seen)?.contiguous()?, 2, 0)?;
            self.memory = memory;
        }
        self.memory.slice_set(&new.contiguous()?, 2, seen)
    }
}
