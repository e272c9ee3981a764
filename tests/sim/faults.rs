//! What goes wrong below the store, put into its own write connection: a full disk, a statement after which SQLite
//! rolls everything back, and commits that fail, whether or not they were stored.
#![allow(unsafe_code)] // SQLite's hooks, for which rusqlite wants the connection for itself alone

use onceward::store::Store;
use rusqlite::ffi;
use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;

thread_local! {
    /// On a store's writer thread: so many commits go well before one fails.
    static GOOD: Cell<u32> = const { Cell::new(0) };
}

fn is_due() -> bool {
    let left = GOOD.get();
    GOOD.set(left.saturating_sub(1));
    left == 0
}

unsafe extern "C" fn refuse(_: *mut c_void) -> c_int {
    c_int::from(is_due())
}

unsafe extern "C" fn unheard(_: *mut c_void, _: *mut ffi::sqlite3, _: *const c_char, _: c_int) -> c_int {
    if is_due() { ffi::SQLITE_IOERR } else { ffi::SQLITE_OK }
}

/// The commit after `good` more fails; `stored`: its rows are there all the same. Ends with the connection.
pub fn commit_fails(store: &Store, good: u32, stored: bool) {
    let _ = store.write(move |tx| {
        // One more, for the commit of this very piece.
        GOOD.set(good + 1);
        // Safe: the connection is open and this is its thread; the hooks take no data and outlive it.
        unsafe {
            let db = tx.conn().handle();
            if stored {
                ffi::sqlite3_wal_hook(db, Some(unheard), null_mut());
            } else {
                ffi::sqlite3_commit_hook(db, Some(refuse), null_mut());
            }
        }
        Ok(())
    });
}

/// The next row of history is not written, and SQLite has rolled back all that was with it. Ends with the first time.
pub fn undone(store: &Store) {
    let _ = store.write(|tx| {
        tx.conn().execute_batch(
            "CREATE TEMP TRIGGER IF NOT EXISTS sim_undone BEFORE INSERT ON main.onceward_history
             BEGIN SELECT RAISE(ROLLBACK, 'disk I/O error'); END",
        )?;
        Ok(())
    });
}

/// The disk is all right again.
pub fn mended(store: &Store) {
    let _ = store.write(|tx| {
        tx.conn().execute_batch("DROP TRIGGER IF EXISTS temp.sim_undone")?;
        tx.conn().query_row("PRAGMA max_page_count=1000000", [], |_| Ok(()))?;
        Ok(())
    });
}

/// The file cannot grow any more.
pub fn full(store: &Store) {
    let _ = store.write(|tx| {
        tx.conn().query_row("PRAGMA max_page_count=1", [], |_| Ok(()))?;
        Ok(())
    });
}
