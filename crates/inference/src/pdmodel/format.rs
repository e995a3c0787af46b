//! The messages of Paddle's legacy format, `framework.proto`, as far as they are read.

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ProgramDesc {
    #[prost(message, repeated, tag = "1")]
    pub blocks: Vec<BlockDesc>,
    #[prost(message, optional, tag = "4")]
    pub version: Option<Version>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Version {
    #[prost(int64, optional, tag = "1")]
    pub version: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct BlockDesc {
    #[prost(int32, required, tag = "1")]
    pub idx: i32,
    #[prost(int32, required, tag = "2")]
    pub parent_idx: i32,
    #[prost(message, repeated, tag = "3")]
    pub vars: Vec<VarDesc>,
    #[prost(message, repeated, tag = "4")]
    pub ops: Vec<OpDesc>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct VarDesc {
    #[prost(string, required, tag = "1")]
    pub name: String,
    #[prost(message, required, tag = "2")]
    pub kind: VarType,
    #[prost(bool, optional, tag = "3")]
    pub persistable: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct VarType {
    #[prost(int32, required, tag = "1")]
    pub kind: i32,
    #[prost(message, optional, tag = "3")]
    pub dense_tensor: Option<DenseTensorDesc>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DenseTensorDesc {
    #[prost(message, required, tag = "1")]
    pub tensor: TensorDesc,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TensorDesc {
    #[prost(int32, required, tag = "1")]
    pub data_type: i32,
    #[prost(int64, repeated, packed = "false", tag = "2")]
    pub dims: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct OpDesc {
    #[prost(message, repeated, tag = "1")]
    pub inputs: Vec<Arguments>,
    #[prost(message, repeated, tag = "2")]
    pub outputs: Vec<Arguments>,
    #[prost(string, required, tag = "3")]
    pub kind: String,
    #[prost(message, repeated, tag = "4")]
    pub attrs: Vec<Attr>,
}

/// The values of one slot of an operation, by their names.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Arguments {
    #[prost(string, required, tag = "1")]
    pub parameter: String,
    #[prost(string, repeated, tag = "2")]
    pub arguments: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Attr {
    #[prost(string, required, tag = "1")]
    pub name: String,
    #[prost(int32, required, tag = "2")]
    pub kind: i32,
    #[prost(int32, optional, tag = "3")]
    pub i: Option<i32>,
    #[prost(float, optional, tag = "4")]
    pub f: Option<f32>,
    #[prost(string, optional, tag = "5")]
    pub s: Option<String>,
    #[prost(int32, repeated, packed = "false", tag = "6")]
    pub ints: Vec<i32>,
    #[prost(float, repeated, packed = "false", tag = "7")]
    pub floats: Vec<f32>,
    #[prost(string, repeated, tag = "8")]
    pub strings: Vec<String>,
    #[prost(bool, optional, tag = "10")]
    pub b: Option<bool>,
    #[prost(bool, repeated, packed = "false", tag = "11")]
    pub bools: Vec<bool>,
    #[prost(int32, optional, tag = "12")]
    pub block_idx: Option<i32>,
    #[prost(int64, optional, tag = "13")]
    pub l: Option<i64>,
    #[prost(int64, repeated, packed = "false", tag = "15")]
    pub longs: Vec<i64>,
    #[prost(double, repeated, packed = "false", tag = "16")]
    pub float64s: Vec<f64>,
    #[prost(double, optional, tag = "19")]
    pub float64: Option<f64>,
    #[prost(message, optional, tag = "20")]
    pub scalar: Option<Scalar>,
    #[prost(message, repeated, tag = "21")]
    pub scalars: Vec<Scalar>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Scalar {
    #[prost(int32, required, tag = "1")]
    pub kind: i32,
    #[prost(bool, optional, tag = "2")]
    pub b: Option<bool>,
    #[prost(int64, optional, tag = "3")]
    pub i: Option<i64>,
    #[prost(double, optional, tag = "4")]
    pub r: Option<f64>,
}
