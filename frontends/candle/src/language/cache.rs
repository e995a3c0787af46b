//! The keys and values of tokens that were seen, by layer, in memory that grows by pages; with a window, of those only that are still seen.

use candle_core::{Result, Tensor};
use std::sync::Arc;

/// Tokens that a page has room for.
const PAGE: usize = 256;

/// What attention remembers of a text. A new one is empty; a clone goes on by itself.
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

    /// Each token attends to itself and those before it, so many in all, whether a text is read at once or token by token. Older ones are dropped now
    /// and then, so that memory is for twice as many tokens at most, in whole pages of 256; a wider window later does not bring them back.
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
        for (keys, values) in self.layers.iter_mut().flatten() {
            (keys.first, values.first) = (0, 0);
        }
    }

    /// Adds keys and values [1, heads, new tokens, size] to a layer; all that its queries attend to.
    pub(super) fn extend(&mut self, layer: usize, keys: &Tensor, values: &Tensor) -> Result<(Tensor, Tensor)> {
        let layers = self.layers.len();
        let Some(slot) = self.layers.get_mut(layer) else {
            candle_core::bail!("a cache of {layers} layers, in a model of more")
        };
        let (stored_keys, stored_values) = match slot {
            Some(stores) => stores,
            None => slot.insert((Store::like(keys)?, Store::like(values)?)),
        };
        let (seen, window) = (self.tokens, self.window);
        Ok((stored_keys.extend(keys, seen, window)?, stored_values.extend(values, seen, window)?))
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
    /// Which token of the text is the first in memory.
    first: usize,
    /// Shared by clones, which have their memory in common until one of them writes.
    owners: Arc<()>,
}

impl Store {
    fn like(tensor: &Tensor) -> Result<Store> {
        Ok(Store { memory: room_for(PAGE, tensor)?, first: 0, owners: Arc::new(()) })
    }

    /// Writes what is new behind what was seen; the new tokens and those before that the first of them attends to.
    fn extend(&mut self, new: &Tensor, seen: usize, window: Option<usize>) -> Result<Tensor> {
        let count = new.dim(2)?;
        let Some(held) = seen.checked_sub(self.first) else {
            candle_core::bail!("token {seen} is gone: a text was not read to its end. The cache must be cleared");
        };
        let needed = window.map_or(held, |window| held.min(window - 1));
        match window {
            Some(window) if count > window => self.replace(new, seen, (held, needed), window - 1),
            _ => self.append(new, (held, needed), window),
        }
    }

    fn append(&mut self, new: &Tensor, (held, needed): (usize, usize), window: Option<usize>) -> Result<Tensor> {
        let (count, mut before) = (new.dim(2)?, held);
        if held + count > self.memory.dim(2)? {
            self.keep(held, needed, count, window)?;
            before = needed;
        } else if Arc::strong_count(&self.owners) > 1 {
            (self.memory, self.owners) = (self.memory.copy()?, Arc::new(()));
        }
        self.memory.slice_set(&new.contiguous()?, 2, before)?;
        self.memory.narrow(2, before - needed, needed + count)
    }

    /// More than a window at once: no later token attends to what is in memory, nor to all of what is new.
    fn replace(&mut self, new: &Tensor, seen: usize, (held, needed): (usize, usize), kept: usize) -> Result<Tensor> {
        let count = new.dim(2)?;
        let all = Tensor::cat(&[&self.memory.narrow(2, held - needed, needed)?, new], 2)?;
        let memory = room_for(kept.next_multiple_of(PAGE), new)?;
        if kept > 0 {
            memory.slice_set(&new.narrow(2, count - kept, kept)?.force_contiguous()?, 2, 0)?;
        }
        *self = Store { memory, first: seen + count - kept, owners: Arc::new(()) };
        Ok(all)
    }

    /// Other memory, with the last so many of the tokens held, and room for more of them.
    fn keep(&mut self, held: usize, needed: usize, count: usize, window: Option<usize>) -> Result<()> {
        // Half as much again, so that a long text is copied a few times only; at twice the window every copy makes room for another window.
        let room = self.memory.dim(2)?;
        let ample = (room + room / 2).min(window.map_or(usize::MAX, |window| window.saturating_mul(2)));
        let memory = room_for((needed + count).max(ample).next_multiple_of(PAGE), &self.memory)?;
        if needed > 0 {
            memory.slice_set(&self.memory.narrow(2, held - needed, needed)?.contiguous()?, 2, 0)?;
        }
        *self = Store { memory, first: self.first + held - needed, owners: Arc::new(()) };
        Ok(())
    }
}

/// Memory for so many tokens of such a tensor.
fn room_for(tokens: usize, like: &Tensor) -> Result<Tensor> {
    let (batch, heads, _, size) = like.dims4()?;
    Tensor::zeros((batch, heads, tokens, size), like.dtype(), like.device())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AttentionOptions, attention};
    use candle_core::Device;

    const HEADS: usize = 2;
    const SIZE: usize = 4;

    /// Keys or values of this part of a text: every number is another.
    fn part(first: usize, count: usize) -> Tensor {
        let number = |i: usize| {
            let (head, token, at) = (i / (count * SIZE), i / SIZE % count, i % SIZE);
            ((first + token) * SIZE * HEADS + head * SIZE + at) as f32 / 1e4
        };
        let numbers: Vec<f32> = (0..HEADS * count * SIZE).map(number).collect();
        Tensor::from_vec(numbers, (1, HEADS, count, SIZE), &Device::Cpu).unwrap()
    }

    fn numbers(tensor: &Tensor) -> Vec<f32> {
        tensor.flatten_all().unwrap().to_vec1().unwrap()
    }

    /// Tokens that a layer's keys have room for.
    fn room(cache: &Cache) -> usize {
        cache.layers[0].as_ref().unwrap().0.memory.dim(2).unwrap()
    }

    /// Reads parts of these lengths; each must be given the last tokens of the whole text that its window has.
    fn read(cache: &mut Cache, parts: impl IntoIterator<Item = usize>) {
        for count in parts {
            let seen = cache.tokens();
            let (keys, values) = cache.extend(0, &part(seen, count), &part(seen, count).neg().unwrap()).unwrap();
            cache.advance(count);
            let all = cache.window.map_or(seen, |window| seen.min(window - 1)) + count;
            let want = part(seen + count - all, all);
            assert_eq!(numbers(&keys), numbers(&want), "{count} tokens after {seen}");
            assert_eq!(numbers(&values), numbers(&want.neg().unwrap()), "{count} tokens after {seen}");
        }
    }

    #[test]
    fn a_window_is_given_all_that_it_sees_in_bounded_memory() {
        for window in [1, 2, 100, 256, 300, 700] {
            let mut cache = Cache::new(1).with_window(window);
            let parts =
                [1, 5, 250, 1, 1, 300, 3000, 1, 256, 7].into_iter().chain([1; 3000]).chain([window, 1, window + 1, 1]);
            let mut largest = 0;
            for count in parts {
                read(&mut cache, [count]);
                largest = largest.max(room(&cache));
            }
            assert!(largest <= (2 * window).next_multiple_of(PAGE), "room for {largest} with a window of {window}");
            cache.clear();
            read(&mut cache, [3, 400, 1]);
        }
    }

    #[test]
    fn attention_is_that_of_the_whole_text() {
        let window = 40;
        let options = AttentionOptions { causal: true, window: Some(window), ..Default::default() };
        let (mut dropping, mut whole) = (Cache::new(1).with_window(window), Cache::new(1));
        for count in [30, 1, 1, 900, 1, 33].into_iter().chain([1; 600]) {
            let (seen, query) = (dropping.tokens(), part(dropping.tokens() % 50, count).affine(500.0, -1.0).unwrap());
            let new = part(seen % 70, count);
            let [found, want] = [&mut dropping, &mut whole].map(|cache| {
                let (keys, values) = cache.extend(0, &new, &new).unwrap();
                cache.advance(count);
                attention(&query, &keys, &values, &options).unwrap()
            });
            let far = (found - want).unwrap().abs().unwrap().max_all().unwrap().to_scalar::<f32>().unwrap();
            assert!(far < 1e-6, "{far} at {seen}");
        }
        assert_eq!((room(&dropping), room(&whole) >= 1566), (PAGE, true));
    }

    #[test]
    fn without_a_window_all_is_kept() {
        let mut cache = Cache::new(1);
        read(&mut cache, [1, 300, 1, 1, 900, 1]);
        assert!((1204..2 * 1204).contains(&room(&cache)), "{}", room(&cache));
    }

    #[test]
    fn clones_go_on_by_themselves() {
        let mut cache = Cache::new(1);
        read(&mut cache, [10]);
        let mut other = cache.clone();
        let (elsewhere, _) = other.extend(0, &part(70, 2), &part(70, 2)).unwrap();
        let elsewhere = numbers(&elsewhere);
        read(&mut cache, [2, 1]);
        let want = Tensor::cat(&[part(0, 10), part(70, 2)], 2).unwrap();
        assert_eq!(elsewhere, numbers(&want));
        other.advance(2);
        let (again, _) = other.extend(0, &part(80, 1), &part(80, 1)).unwrap();
        assert_eq!(numbers(&again), numbers(&Tensor::cat(&[want, part(80, 1)], 2).unwrap()));
    }

    #[test]
    fn a_text_that_was_not_read_to_its_end() {
        let mut cache = Cache::new(2).with_window(4);
        cache.extend(0, &part(0, 9), &part(0, 9)).unwrap();
        // The second layer failed: the first has dropped what another try would begin with.
        let error = cache.extend(0, &part(0, 9), &part(0, 9)).unwrap_err().to_string();
        assert!(error.contains("must be cleared"), "{error}");
        cache.clear();
        read(&mut cache, [9, 1]);
    }
}
