//! Writes that reuse their buffer, seen by address and by peak memory. In a test process of its own, one test at a time,
//! because the counters are the process'.

use std::sync::{Mutex, MutexGuard, PoisonError};

use mlx::cpu::{AttentionMetadata, PagedAttention, Projected};
use mlx::{Array, Dtype, Result, memory};

fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    // A failed test poisons the lock; the next one can run.
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

const ROWS: i32 = 1024;
const WIDTH: i32 = 512;

fn cache() -> Result<Array> {
    let cache = Array::zeros(&[ROWS, WIDTH], Dtype::F32)?.contiguous()?;
    cache.eval()?;
    Ok(cache)
}

type Write = fn(Array, i32) -> Result<Array>;

fn update() -> Result<Array> {
    Ok(Array::ones(&[1, WIDTH], Dtype::F32)? * 7)
}

fn index(row: i32) -> Result<Array> {
    Array::from_slice(&[row], &[1])
}

const WRITES: [(&str, Write); 4] = [
    ("slice_update", |a, row| a.slice_update(&update()?, &[row, 0], &[row + 1, WIDTH])),
    ("put_along_axis", |a, row| {
        a.put_along_axis(&index(row)?.reshape(&[1, 1])?.broadcast_to(&[1, WIDTH])?, &update()?, 0)
    }),
    ("scatter_rows", |a, row| a.scatter_rows(&index(row)?, &update()?)),
    ("scatter_add_rows", |a, row| a.scatter_add_rows(&index(row)?, &update()?)),
];

#[test]
fn a_write_reuses_the_buffer_unless_it_is_shared() -> Result<()> {
    let _alone = alone();
    for (name, write) in WRITES {
        let mut a = cache()?;
        let bytes = a.nbytes();
        assert_eq!(memory::array_buffer_size([&a, &a.clone()])?, bytes);
        let home = a.buffer_address();
        let before = memory::active_memory();
        memory::reset_peak_memory();
        for row in 0..4 {
            a = write(a, row)?;
            a.eval()?;
            assert_eq!(a.buffer_address(), home, "{name}");
        }
        let grown = memory::peak_memory().saturating_sub(before);
        assert!(grown < bytes / 2, "{name}: {grown} bytes more than before");

        let keep = a.clone();
        let moved = write(a, 5)?;
        moved.eval()?;
        assert_ne!(moved.buffer_address(), home, "{name}");
        assert_eq!(keep.buffer_address(), home, "{name}");
        assert!(memory::peak_memory().saturating_sub(before) >= bytes, "{name}: a copy");
        let row = |a: &Array| a.slice(&[5, 0], &[6, WIDTH])?.sum(&[])?.item::<f32>();
        assert_eq!((row(&keep)?, row(&moved)?), (0.0, 7.0 * WIDTH as f32), "{name}");
    }
    let lazy = update()?;
    assert!(memory::array_buffer_size([&lazy]).is_err());
    let before = memory::set_cache_limit(1 << 20)?;
    assert_eq!(memory::set_cache_limit(before)?, 1 << 20);
    let before = memory::set_memory_limit(1 << 40)?;
    assert_eq!((memory::memory_limit(), memory::set_memory_limit(before)?), (1 << 40, 1 << 40));
    memory::clear_cache();
    assert_eq!(memory::cache_memory(), 0);
    Ok(())
}

#[test]
fn pools_stay_where_they_are_while_steps_overlap() -> Result<()> {
    let _alone = alone();
    let (blocks, size, heads, dim) = (512, 32, 4, 64);
    let pool = || -> Result<Array> {
        let pool = Array::zeros(&[blocks, size, heads, dim], Dtype::F32)?.contiguous()?;
        // What `zeros` gives has no memory of its own yet.
        let pool = pool + 0.0;
        pool.eval()?;
        Ok(pool)
    };
    let (mut k_pool, mut v_pool) = (pool()?, pool()?);
    let bytes = k_pool.nbytes();
    let home = (k_pool.buffer_address(), v_pool.buffer_address());
    let (segments, tables) =
        (|p| Array::from_slice(&[0, 1, p, 0, 0], &[1, 5]), Array::from_slice(&[3], &[1])?);
    let mut x = mlx::random::normal(&[1, 3 * heads * dim], Dtype::F32, 1.0, &mlx::random::key(1)?)?;
    mlx::synchronize()?;
    memory::reset_peak_memory();
    let before = memory::peak_memory().max(memory::active_memory());
    let mut launched = Vec::new();
    for step in 0..20 {
        let position = Array::from_slice(&[step], &[1])?;
        let attended = PagedAttention {
            qkv: &x,
            projected: Projected::QueriesKeysValues,
            heads,
            kv_heads: heads,
            head_dim: dim,
            q_norm: None,
            k_norm: None,
            v_norm: None,
            positions: &position,
            rope: None,
            scale: 0.125,
            softcap: None,
            window: None,
            sink_tokens: 0,
            sinks: None,
            k_pool,
            v_pool,
            packing: None,
            metadata: AttentionMetadata {
                slots: &Array::from_slice(&[3 * size + step], &[1])?,
                segments: &segments(step)?,
                tables: &tables,
                ends: None,
            },
        }
        .run()?;
        (k_pool, v_pool) = (attended.k_pool, attended.v_pool);
        x = mlx::concatenate(&[&attended.out, &attended.out, &attended.out], 1)?;
        // The next step is built and launched while this one runs.
        mlx::async_eval([&x])?;
        launched.push(attended.out);
    }
    mlx::eval([&x, &k_pool, &v_pool])?;
    assert_eq!((k_pool.buffer_address(), v_pool.buffer_address()), home);
    let grown = memory::peak_memory().saturating_sub(before);
    assert!(grown < bytes / 4, "peak memory grew by {grown} bytes; a pool has {bytes}");
    assert!(launched.iter().all(|out| out.to_vec::<f32>().is_ok_and(|v| v.iter().all(|v| v.is_finite()))));
    Ok(())
}
