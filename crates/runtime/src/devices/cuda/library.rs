//! Functions of a library that is found at run time.

/// A type of these functions, under names of ours, that keeps the library as long as them. `load` takes the symbols from a library whose header
/// declares them with these types.
macro_rules! functions {
    (
        $(#[$about:meta])* pub struct $api:ident;
        $($name:ident = $symbol:literal($($argument:ty),*) -> $result:ty;)*
    ) => {
        $(#[$about])*
        pub struct $api {
            $(pub $name: unsafe extern "C" fn($($argument),*) -> $result,)*
            _library: Library,
        }

        impl $api {
            fn load(library: Library) -> std::result::Result<$api, libloading::Error> {
                // SAFETY: the types are those of the header for these symbols; the library lives as long as the functions.
                unsafe { Ok($api { $($name: *library.get($symbol)?,)* _library: library }) }
            }
        }
    };
}

pub(super) use functions;
