//! A model that is loaded, and its runs.

use crate::course::Segment;
use crate::courses::Courses;
use crate::error::{Error, Result};
use crate::lower::{self, Lowered};
use crate::parameters;
use crate::program::{Dialect, Port, Program};
use crate::storage::Storage;
use crate::told::told;
use crate::{onnx, pdmodel, pir};
use openmps::graph::{Executable, ExecutableCache, StoredTensor};
use openmps::operators::cache::Cache;
use openmps::{DataType, Device, OptimizationLevel, TensorData};
use prost::bytes::Bytes;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Rounds of a loop at most, unless the caller says otherwise.
const LONGEST_LOOP: usize = 1 << 20;

/// Compiled shapes that a model keeps; those used last stay.
const SHAPES: usize = 64;

/// An inference program with its parameters on a device. Clones share both, and what was compiled; they may run in several threads.
///
/// ```no_run
/// use openmps::{Device, TensorData};
/// use openmps_inference::Model;
///
/// let device = Device::get(0)?;
/// let model = Model::open(&device, "inference.json", "inference.pdiparams")?;
/// let image = TensorData::from_slice(&device, &[1, 3, 48, 320], &vec![0.0f32; 3 * 48 * 320])?;
/// let outputs = model.run(&[image])?;
/// println!("{:?}", outputs[0].shape());
/// # Ok::<(), openmps_inference::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Model {
    shared: Arc<Shared>,
    longest_loop: usize,
}

#[derive(Debug)]
struct Shared {
    device: Device,
    program: Program,
    weights: Vec<StoredTensor>,
    /// What a model of ONNX was read from.
    source: Option<Source>,
    /// Graphs that are run on the way, and folded weights.
    graphs: ExecutableCache,
    /// Programs by the shapes of their inputs, and by how long loops may be.
    shapes: Cache<(Vec<Vec<usize>>, usize), Compiled>,
}

/// A file of ONNX, and the folder in which files beside it lie.
#[derive(Debug)]
struct Source {
    file: Arc<Storage>,
    folder: Option<PathBuf>,
}

/// A program for one set of shapes.
#[derive(Debug)]
enum Compiled {
    /// The whole program is one graph: nothing in it depends on a tensor's content.
    Whole(Arc<Executable>),
    /// It depends on values what is computed: a run finds out, unless one before it did.
    ByRun(Courses),
}

/// The program's form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// JSON, Paddle 3's `inference.json`.
    Pir,
    /// A protobuf, `.pdmodel`.
    Legacy,
    /// Another one, `.onnx`.
    Onnx,
}

impl Format {
    /// The form that a program's bytes have: JSON begins with a brace, a model of ONNX has fields of its own.
    pub fn of(program: &[u8]) -> Format {
        let first = program.iter().find(|byte| !byte.is_ascii_whitespace());
        match first {
            Some(b'{') => Format::Pir,
            _ if onnx::is_model(program) => Format::Onnx,
            _ => Format::Legacy,
        }
    }
}

impl Model {
    /// Reads a program and finds its parameters in two files; the program's form is told from its content. Parameters are read when a run with new shapes
    /// needs them: the file stays open, and may be given another content only by putting another file in its place.
    pub fn open(device: &Device, program: impl AsRef<Path>, parameters: impl AsRef<Path>) -> Result<Model> {
        let program = program.as_ref();
        let bytes = std::fs::read(program).map_err(|source| Error::File { path: program.to_owned(), source })?;
        Model::with_parameters(device, &bytes, parameters)
    }

    /// The same with the program from memory.
    pub fn with_parameters(device: &Device, program: &[u8], parameters: impl AsRef<Path>) -> Result<Model> {
        Model::with_storage(device, program, Storage::open(parameters.as_ref())?)
    }

    /// The same from memory. Everything that openmps cannot run is named at once, before anything runs.
    pub fn load(device: &Device, program: &[u8], parameters: &[u8]) -> Result<Model> {
        Model::with_storage(device, program, Storage::Memory(Bytes::copy_from_slice(parameters)))
    }

    fn with_storage(device: &Device, program: &[u8], parameters: Storage) -> Result<Model> {
        let program = match Format::of(program) {
            Format::Pir => pir::read(program)?,
            Format::Legacy => pdmodel::read(program)?,
            Format::Onnx => {
                let what = "it is a model of ONNX, which holds its parameters: open it without a file of them";
                return Err(Error::program(what));
            }
        };
        let program = supported_only(program)?;
        let weights = parameters::load(device, &program, parameters)?;
        Ok(Model::of(device, program, weights, None))
    }

    /// Reads a model of ONNX. Its tensors, in the file or in others beside it, are read when a run with new shapes needs them: the files stay open.
    pub fn open_onnx(device: &Device, path: impl AsRef<Path>) -> Result<Model> {
        let path = path.as_ref();
        let file = Arc::new(Storage::open(path)?);
        Model::with_onnx(device, Source { file, folder: path.parent().map(Path::to_owned) }, &[])
    }

    /// The same from memory; all its tensors must be in it.
    pub fn load_onnx(device: &Device, model: &[u8]) -> Result<Model> {
        let file = Arc::new(Storage::Memory(Bytes::copy_from_slice(model)));
        Model::with_onnx(device, Source { file, folder: None }, &[])
    }

    fn with_onnx(device: &Device, source: Source, given: &[&str]) -> Result<Model> {
        let onnx::Read { program, weights } = onnx::read(&source.file.whole()?, given)?;
        let program = supported_only(program)?;
        let weights = onnx::load(device, weights, &source.file, source.folder.as_deref())?;
        Ok(Model::of(device, program, weights, Some(source)))
    }

    fn of(device: &Device, program: Program, weights: Vec<StoredTensor>, source: Option<Source>) -> Model {
        let shared = Shared {
            device: device.clone(),
            program,
            weights,
            source,
            graphs: ExecutableCache::new(SHAPES),
            shapes: Cache::new(SHAPES),
        };
        Model { shared: Arc::new(shared), longest_loop: LONGEST_LOOP }
    }

    /// The same model of ONNX, whose runs are given tensors of these names behind the other inputs, instead of the model's own: the model must
    /// say of them that they are inputs, too ([`Program::overridable`]).
    pub fn given(&self, names: &[&str]) -> Result<Model> {
        let Shared { device, program, source, .. } = &*self.shared;
        let is_overridable = |name: &&&str| program.overridable.iter().any(|(own, _)| own == **name);
        let unknown = names.iter().find(|name| !is_overridable(name));
        match (source, unknown) {
            (Some(source), None) => {
                let source = Source { file: Arc::clone(&source.file), folder: source.folder.clone() };
                let model = Model::with_onnx(device, source, names)?;
                Ok(model.with_longest_loop(self.longest_loop))
            }
            (_, unknown) => {
                let name = unknown.or(names.first()).copied().unwrap_or_default().to_owned();
                let what = "the model does not let a run give it".to_owned();
                Err(Error::Input { name, what })
            }
        }
    }

    /// The same model, whose runs are an error where a loop goes on for more rounds than this: a program may loop for ever.
    pub fn with_longest_loop(self, rounds: usize) -> Model {
        Model { longest_loop: rounds, ..self }
    }

    /// The device that it runs on.
    pub fn device(&self) -> &Device {
        &self.shared.device
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.shared.program
    }

    /// What a run is given: names with shapes, -1 where a run decides, and element types.
    pub fn inputs(&self) -> Vec<(&str, &[i64], Option<DataType>)> {
        self.ports(&self.shared.program.inputs)
    }

    /// What a run gives back, alike.
    pub fn outputs(&self) -> Vec<(&str, &[i64], Option<DataType>)> {
        self.ports(&self.shared.program.outputs)
    }

    fn ports<'a>(&'a self, ports: &'a [Port]) -> Vec<(&'a str, &'a [i64], Option<DataType>)> {
        let values = &self.shared.program.values;
        ports.iter().map(|port| (&port.name[..], &values[port.value].dims[..], values[port.value].data_type)).collect()
    }

    /// Runs the program. The first run with new shapes compiles it for them.
    pub fn run(&self, inputs: &[TensorData]) -> Result<Vec<TensorData>> {
        self.results(inputs).map_err(|error| told(&self.shared.device, error))
    }

    fn results(&self, inputs: &[TensorData]) -> Result<Vec<TensorData>> {
        let mut lowered = None;
        let compiled = self.compiled(inputs, &mut lowered)?;
        let shared = &*self.shared;
        let queue = shared.device.queue();
        let courses = match &*compiled {
            Compiled::Whole(executable) => return Ok(executable.run(&queue, &self.feeds(inputs))?),
            Compiled::ByRun(courses) => courses,
        };
        let Lowered { graph, results, feeds, course } = match lowered {
            Some(lowered) => lowered,
            None => match courses.follow(&queue, inputs) {
                Ok(Some(results)) => return Ok(results),
                Ok(None) => self.lower(inputs)?,
                // The same error comes with the operation's name.
                Err(error) => {
                    told(&shared.device, error);
                    self.lower(inputs)?
                }
            },
        };
        let executable = shared.graphs.compile(&graph, &shared.device, &results, OptimizationLevel::Level1)?;
        let (last, results) = Segment::first(executable, &queue, feeds)?;
        courses.keep(course, last);
        Ok(results)
    }

    /// The program compiled for the shapes of these inputs, which it is fed by [`Model::feeds`]: to see its steps, its memory and where
    /// its time goes. None where each run finds out anew what it does.
    pub fn executable(&self, inputs: &[TensorData]) -> Result<Option<Arc<Executable>>> {
        let compiled = self.compiled(inputs, &mut None).map_err(|error| told(&self.shared.device, error))?;
        Ok(match &*compiled {
            Compiled::Whole(executable) => Some(Arc::clone(executable)),
            Compiled::ByRun(_) => None,
        })
    }

    /// Inputs with their names, as an executable takes them.
    pub fn feeds<'a>(&'a self, inputs: &'a [TensorData]) -> Vec<(&'a str, &'a TensorData)> {
        self.shared.program.inputs.iter().zip(inputs).map(|(port, input)| (&port.name[..], input)).collect()
    }

    /// What the program is for these inputs. Where a run finds out, and this was the first to ask, `lowered` is what is left of the run.
    fn compiled(&self, inputs: &[TensorData], lowered: &mut Option<Lowered>) -> Result<Arc<Compiled>> {
        self.check(inputs)?;
        let shared = &*self.shared;
        let key = (inputs.iter().map(|input| input.shape().to_vec()).collect(), self.longest_loop);
        shared.shapes.get_or_make(&key, || -> Result<Compiled> {
            let made = self.lower(inputs)?;
            if !made.course.is_empty() {
                *lowered = Some(made);
                return Ok(Compiled::ByRun(Courses::default()));
            }
            let Lowered { graph, results, .. } = &made;
            let executable = shared.graphs.compile_anew(graph, &shared.device, results, OptimizationLevel::Level1)?;
            Ok(Compiled::Whole(Arc::new(executable)))
        })
    }

    fn lower(&self, inputs: &[TensorData]) -> Result<Lowered> {
        let Shared { program, device, graphs, weights, .. } = &*self.shared;
        lower::lower(program, device, graphs, weights, inputs, self.longest_loop)
    }

    fn check(&self, inputs: &[TensorData]) -> Result<()> {
        let declared = self.inputs();
        if inputs.len() != declared.len() {
            let what = format!("{} inputs were given, the program has {}", inputs.len(), declared.len());
            return Err(Error::Input { name: "of the run".to_owned(), what });
        }
        let Program { inputs: ports, values, .. } = &self.shared.program;
        for (((name, dims, data_type), input), port) in declared.into_iter().zip(inputs).zip(ports) {
            let refuse = |what| Err(Error::Input { name: name.to_owned(), what });
            if data_type.is_some_and(|data_type| data_type != input.data_type()) {
                return refuse(format!("it is {}, the program says {data_type:?}", input.data_type()));
            }
            let fits = |(&size, &dim): (&usize, &i64)| dim < 0 || size as i64 == dim;
            if values[port.value].any_rank {
                continue;
            }
            if dims.len() != input.shape().len() || !input.shape().iter().zip(dims).all(fits) {
                return refuse(format!("its shape is {:?}, the program says {dims:?}", input.shape()));
            }
        }
        Ok(())
    }
}

/// Reads a program of any form.
pub fn read_program(program: &[u8]) -> Result<Program> {
    match Format::of(program) {
        Format::Pir => pir::read(program),
        Format::Legacy => pdmodel::read(program),
        Format::Onnx => Ok(onnx::read(&Bytes::copy_from_slice(program), &[])?.program),
    }
}

/// A program all of whose operations can be run.
fn supported_only(program: Program) -> Result<Program> {
    let unsupported = unsupported(&program);
    if unsupported.is_empty() { Ok(program) } else { Err(Error::Unsupported(unsupported)) }
}

/// The names of the operations that cannot be run, each once.
pub fn unsupported(program: &Program) -> Vec<String> {
    let mut names = BTreeSet::new();
    program.body.visit(&mut |operation| {
        if !lower::is_known(program.dialect, &operation.name) {
            names.insert(operation.name.clone());
        }
    });
    names.into_iter().collect()
}

/// Every operation of Paddle's or ONNX's that can be run, in alphabetical order.
pub fn supported(dialect: Dialect) -> Vec<&'static str> {
    lower::known(dialect)
}
