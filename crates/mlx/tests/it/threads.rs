//! Finished values cross threads; the graph does not (that is a compile error, see [`mlx::Array`]).

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use mlx::{Array, Dtype, Frozen, Result};

fn frozen(n: i32) -> Result<Frozen> {
    (Array::arange(0..n, Dtype::F32)? * 2).freeze()
}

#[test]
fn threads_share_finished_weights() -> Result<()> {
    let weights = frozen(32)?;
    let sum = |scale: i32| -> Result<f32> {
        let mut last = 0.0;
        for _ in 0..100 {
            last = (weights.get() * scale).sum(&[])?.item()?;
        }
        Ok(last)
    };
    let sums = std::thread::scope(|scope| {
        let jobs: Vec<_> = (0..3).map(|scale| scope.spawn(move || sum(scale))).collect();
        jobs.into_iter().map(|job| job.join().unwrap()).collect::<Result<Vec<_>>>()
    })?;
    assert_eq!(sums, [0.0, 992.0, 1984.0]);
    Ok(())
}

#[test]
fn a_loader_thread_hands_over_what_it_evaluated() -> Result<()> {
    let path = std::env::temp_dir().join(format!("mlx-threads-{}.safetensors", std::process::id()));
    let x = Array::arange(0..6, Dtype::I32)?.reshape(&[2, 3])?;
    mlx::io::save_safetensors(&path, [("x", &x), ("t", &x.t()?)], [("format", "mlx"), ("rows", "2")])?;
    let file = path.clone();
    let loaded = std::thread::spawn(move || -> Result<Vec<Frozen>> {
        let content = mlx::io::load_safetensors_with_metadata(&file)?;
        assert_eq!(content.metadata["format"], "mlx");
        assert_eq!(content.metadata["rows"], "2");
        content.arrays.into_values().map(Array::freeze).collect()
    });
    let loaded = loaded.join().unwrap()?;
    std::fs::remove_file(path).unwrap();
    let [t, x] = [&loaded[0], &loaded[1]].map(Frozen::get);
    assert_eq!((t.shape(), x.shape()), (&[3, 2][..], &[2, 3][..]));
    assert_eq!(t.to_vec::<i32>()?, [0, 3, 1, 4, 2, 5]);
    assert_eq!(x.to_vec::<i32>()?, [0, 1, 2, 3, 4, 5]);
    Ok(())
}

#[test]
fn a_value_may_be_dropped_anywhere() -> Result<()> {
    let value = frozen(1000)?;
    let view = value.get().slice(&[10], &[20])?;
    std::thread::spawn(move || drop(value)).join().unwrap();
    assert_eq!(view.sum(&[])?.item::<f32>()?, 290.0);
    Ok(())
}
