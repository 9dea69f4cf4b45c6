//! Writes that reuse their buffer, seen by address and by peak memory. One test: the counters are the process'.

use mlx::{Array, Dtype, Result, memory};

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

const WRITES: [(&str, Write); 6] = [
    ("slice_update", |a, row| a.slice_update(&update()?, &[row, 0], &[row + 1, WIDTH])),
    ("slice_update_at", |a, row| a.slice_update_at(&update()?, &index(row)?, &[0])),
    ("put_along_axis", |a, row| {
        a.put_along_axis(&index(row)?.reshape(&[1, 1])?.broadcast_to(&[1, WIDTH])?, &update()?, 0)
    }),
    ("add_along_axis", |a, row| {
        a.add_along_axis(&index(row)?.reshape(&[1, 1])?.broadcast_to(&[1, WIDTH])?, &update()?, 0)
    }),
    ("scatter_rows", |a, row| a.scatter_rows(&index(row)?, &update()?)),
    ("scatter_add_rows", |a, row| a.scatter_add_rows(&index(row)?, &update()?)),
];

#[test]
fn a_write_reuses_the_buffer_unless_it_is_shared() -> Result<()> {
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
