//! When and on which thread arrays are computed, and what stays unchanged.

use mlx::{Array, Dtype, Enabled, Result, Shapes, bf16, f16};

#[test]
fn nothing_is_computed_before_it_is_asked_for() -> Result<()> {
    let x = Array::arange(0..1000, Dtype::F32)?.exp()?;
    assert_eq!((x.origin().as_deref(), x.is_available()?, x.buffer_address()), (Some("Exp"), false, None));
    x.eval()?;
    assert_eq!((x.origin(), x.is_available()?), (None, true));
    assert!(x.buffer_address().is_some());
    Ok(())
}

#[test]
fn work_in_flight_can_be_built_upon() -> Result<()> {
    let mut x = Array::zeros(&[64], Dtype::F32)?;
    for _ in 0..200 {
        x = x + 1;
        mlx::async_eval([&x])?;
    }
    let y = &x * 2;
    assert_eq!(y.to_vec::<f32>()?, [400.0; 64]);
    mlx::synchronize()?;
    assert!(x.is_available()?);
    Ok(())
}

#[test]
fn values_go_in_and_come_out_in_every_dtype() -> Result<()> {
    fn there_and_back<T: mlx::Element + PartialEq + std::fmt::Debug>(values: &[T]) -> Result<()> {
        let a = Array::from_slice(values, &[values.len() as i32])?;
        assert_eq!(a.dtype()?, T::DTYPE);
        assert_eq!(a.to_vec::<T>()?, values);
        assert_eq!(a.nbytes(), values.len() * T::DTYPE.size_of());
        assert_eq!(Array::from_bytes(&a.to_bytes()?, a.shape(), T::DTYPE)?.to_vec::<T>()?, values);
        Ok(())
    }
    there_and_back(&[true, false, true])?;
    there_and_back(&[0u8, 255])?;
    there_and_back(&[i8::MIN, i8::MAX])?;
    there_and_back(&[0u16, u16::MAX])?;
    there_and_back(&[i16::MIN, i16::MAX])?;
    there_and_back(&[0u32, u32::MAX])?;
    there_and_back(&[i32::MIN, i32::MAX])?;
    there_and_back(&[0u64, u64::MAX])?;
    there_and_back(&[i64::MIN, i64::MAX])?;
    there_and_back(&[f16::MIN, f16::EPSILON])?;
    there_and_back(&[bf16::MIN, bf16::EPSILON])?;
    there_and_back(&[f32::MIN, f32::EPSILON])?;
    there_and_back(&[f64::MIN, f64::EPSILON])?;
    there_and_back::<f32>(&[])
}

#[test]
fn reading_a_view_gives_its_own_order() -> Result<()> {
    let x = Array::from_slice(&[1i32, 2, 3, 4, 5, 6], &[2, 3])?;
    assert_eq!(x.t()?.to_vec::<i32>()?, [1, 4, 2, 5, 3, 6]);
    assert_eq!(x.slice(&[0, 1], &[2, 3])?.to_vec::<i32>()?, [2, 3, 5, 6]);
    assert_eq!(x.slice(&[1, 2], &[2, 3])?.item::<i32>()?, 6);
    assert_eq!((x.dims()?, x.dim(-1)?, x.ndim(), x.size()), ([2, 3], 3, 2, 6));
    assert!(x.dims::<1>().is_err() && x.dim(2).is_err() && x.dim(-3).is_err());
    Ok(())
}

#[test]
fn dtypes_have_names_and_sizes() {
    use Dtype::*;
    for (dtype, name, size, float, integer) in [
        (Bool, "bool", 1, false, false),
        (U8, "uint8", 1, false, true),
        (I64, "int64", 8, false, true),
        (Bf16, "bfloat16", 2, true, false),
        (F32, "float32", 4, true, false),
        (Complex64, "complex64", 8, false, false),
    ] {
        assert_eq!((dtype.to_string().as_str(), dtype.size_of()), (name, size));
        assert_eq!((dtype.is_float(), dtype.is_integer()), (float, integer));
        assert_eq!(Dtype::from_name(name), Some(dtype));
    }
    assert_eq!(Dtype::from_name("F32"), None);
}

#[test]
fn compiled_closures_give_the_same_values() -> Result<()> {
    let scale = Array::scalar(3.0, Dtype::F32)?;
    let body = move |x: &[Array]| Ok(vec![x[0].silu()? * &x[1] + &scale, &x[0] - &x[1]]);
    let inputs = |n: i32| -> Result<[Array; 2]> {
        Ok([Array::arange(0..n, Dtype::F32)? * 0.1, Array::arange(n..2 * n, Dtype::F32)?])
    };
    for shapes in [Shapes::Fixed, Shapes::Any] {
        let compiled = mlx::compile(body.clone(), shapes)?;
        for n in [5, 5, 7] {
            let x = inputs(n)?;
            let (got, want) = (compiled.call(&[&x[0], &x[1]])?, body(&x)?);
            for (got, want) in got.iter().zip(&want) {
                let difference = (got - want).abs()?.max(&[])?.item::<f32>()?;
                assert!(difference < 1e-5, "{difference}");
            }
        }
    }
    mlx::set_compile_enabled(Enabled::No);
    let x = inputs(4)?;
    assert_eq!(mlx::compile(body, Shapes::Fixed)?.call(&[&x[0], &x[1]])?[1].to_vec::<f32>()?.len(), 4);
    mlx::set_compile_enabled(Enabled::Yes);
    Ok(())
}

#[test]
fn the_device_is_known() -> Result<()> {
    use mlx::device::{self, Backend, Device};
    assert_eq!(device::version(), "0.32.4");
    assert_eq!(device::gpu_available(), device::backend() != Backend::Cpu);
    assert_eq!(device::gpu_available(), device::gpu_count() > 0);
    device::set_default(Device::Cpu)?;
    assert_eq!(device::default()?, Device::Cpu);
    let info = device::info()?;
    assert!(!info.properties.is_empty(), "{info:?}");
    assert!(!info.name.is_empty(), "{info:?}");
    Ok(())
}
