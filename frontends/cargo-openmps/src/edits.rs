//! What is changed in candle-nn: for each version, functions that ask openmps first. Their own text stays behind the hook, for tensors that
//! openmps does not take. No text of Candle's stands here: a function is named, and known by its SHA-256.

/// A hook in one function.
#[derive(Clone, Debug)]
pub struct Edit {
    /// The file, from the crate's root.
    pub file: &'static str,
    /// A function, or a method as `Type::name`.
    pub function: &'static str,
    /// SHA-256 of its text, from `fn` to the closing brace.
    pub digest: &'static str,
    /// What the call needs that the function does not have.
    pub before: &'static str,
    /// A call of a function of `openmps_candle::hooks`, by the function's parameters.
    pub call: &'static str,
}

impl Edit {
    /// What is put behind the opening brace.
    pub fn hook(&self) -> String {
        let Edit { before, call, .. } = self;
        format!(" {before}if let Some(y) = openmps_candle::hooks::{call}? {{ return Ok(y); }}")
    }
}

/// The edits of a version of candle-nn, or which versions there are.
pub fn of_version(version: &str) -> crate::result::Result<&'static [Edit]> {
    if VERSIONS.contains(&version) {
        return Ok(EDITS);
    }
    let known = VERSIONS.join(", ");
    Err(format!("candle-nn {version} is not known here; versions that are: {known}"))
}

/// The versions whose functions these are.
pub const VERSIONS: &[&str] = &["0.11.0", "0.11.1"];

const OPS: &str = "src/ops.rs";
const ROTARY: &str = "src/rotary_emb.rs";
const CACHES: &str = "src/kv_cache.rs";

const EDITS: &[Edit] = &[
    edit(OPS, "softmax", "softmax(xs, &dim)", "f0f04f825727246f157a41072623c6d10a18739db2c1a1cf13e7ce735d6b6a6d"),
    edit(OPS, "log_softmax", "log_softmax(xs, &d)", "6115a9993437039a15527861f09d917da7c547464900a19f4e424d7702bc8ca6"),
    edit(
        OPS,
        "softmax_last_dim",
        "softmax(xs, &D::Minus1)",
        "250fbd2e7fa7d993c228c4f716ef08d80afe8899540365095b5c8dc464605ce6",
    ),
    edit(
        OPS,
        "rms_norm",
        "rms_norm(xs, alpha, f64::from(eps))",
        "ca12cc1d291294bad40b668da5c5555d2434132349cf94cc9ae07727e6987ac7",
    ),
    edit(
        OPS,
        "layer_norm",
        "layer_norm(xs, alpha, beta, f64::from(eps))",
        "2fd5bcc1c4eeba3095d7181c0e14423d19d26c35332173d0d37add5f39424bcf",
    ),
    edit(
        OPS,
        "sdpa",
        "sdpa([q, k, v], mask, do_causal, scale, softcapping)",
        "5268b47b3c3588cf15455d373bee53288a2c115eca64aa1091321632cee6c6aa",
    ),
    edit(ROTARY, "rope", "rope(xs, cos, sin)", "1d70742a45f9fedd3673bac48e082a080a27455a66c2b419f991bc5af37315c9"),
    edit(ROTARY, "rope_i", "rope_i(xs, cos, sin)", "50bff7c3de9339dfb96a4be89d077fdef1ed307957991eb8d9337497f69cbeeb"),
    edit(
        ROTARY,
        "rope_thd",
        "rope_thd(xs, cos, sin)",
        "a073acb7b566bb6fc376dcc87f782e96bce4372beee7c8bc1b92d4f464a64f7f",
    ),
    edit(
        "src/linear.rs",
        "Linear::forward",
        "linear(x, &self.weight, self.bias.as_ref())",
        "b49ad403c36a015e44617967a42b531279c0916f9251dc27867e3b33eb9626fa",
    ),
    edit(
        "src/layer_norm.rs",
        "LayerNorm::forward",
        "norm(x, &self.weight, self.bias.as_ref(), self.remove_mean, self.eps)",
        "b234b083057eafb0b164ce5bf19934a01476f768610592e8f8815f21b3fe1543",
    ),
    Edit {
        file: "src/attention/cpu_flash/mod.rs",
        function: "flash_attn",
        digest: "62faf1be87683bb58e1767be6d0a0bc676f350403811b7e8740a6b10d0113666",
        before: "let (tensor, offset) = match &attn_mask { \
                 AttnMask::None => (None, None), \
                 AttnMask::Causal { kv_offset } => (None, Some(*kv_offset)), \
                 AttnMask::Mask(mask) => (Some(mask), None) }; ",
        call: "flash_attn([q, k, v], softmax_scale, tensor, offset, max_bias.is_some(), softcap)",
    },
    edit(
        "src/attention/cpu_flash/varlen.rs",
        "flash_attn_varlen_cpu",
        "flash_attn_varlen([q, k, v], alibi_slopes.is_some(), [seqlens_q, seqlens_k], softmax_scale, causal, \
         (window_left, window_right))",
        "05e50eb3b1c37a483136302dab78b5da1990106a3083ca80eacfa0f42b6ab362",
    ),
    edit(
        "src/attention/varlen.rs",
        "flash_attn_varlen_unfused",
        "flash_attn_varlen([q, k, v], alibi_slopes.is_some(), [seqlens_q, seqlens_k], softmax_scale, causal, \
         (window_size_left, window_size_right))",
        "d3dde5c263d23131a0d1cd8c975b7386663609e7ca2200cbe2d48f9d76b36036",
    ),
    edit(
        CACHES,
        "ConcatKvCache::append",
        "concat_kv_cache([&mut self.k, &mut self.v], self.dim, [k, v])",
        "67d688d6dbf8163c5adb1d5f623d6edb7a9def9b71afa4573bd26d82e4a826de",
    ),
    edit(
        CACHES,
        "RotatingCache::append",
        "rotating_cache(src, self.dim, [self.offset, self.max_seq_len], |src| self.append(src))",
        "fa476d1572edee283ac1bd426a345aacffe54b0946b50cc36cae49ee78748d3c",
    ),
    edit(
        CACHES,
        "ScatteredKvCache::append",
        "scattered_kv_cache([k, v], &iam.indices, self.context, |k, v| self.append(k, v, iam))",
        "78343011dadc96f0bb04ff8dc79389675aab3ea824c13a1cdc4a16299b6f586b",
    ),
    edit(
        CACHES,
        "InterleavedKvCache::append",
        "interleaved_kv_cache([k, v], |k, v| self.append(k, v))",
        "f46acee286a50df87e8bc71f3e82b1b7c6bfb1d7792511bc027d8d8b6b1800eb",
    ),
    Edit {
        file: CACHES,
        function: "KvCache::append",
        digest: "2d66c5adfcc74c4835f51885d65f762429f2b3869333ef221bc944cd43f1c03c",
        before: "let past = [self.k.current_data()?, self.v.current_data()?]; ",
        call: "kv_cache(past, self.k.dim, [k, v], |k, v| self.k.append(k).and_then(|()| self.v.append(v)))",
    },
];

const fn edit(file: &'static str, function: &'static str, call: &'static str, digest: &'static str) -> Edit {
    Edit { file, function, digest, before: "", call }
}
