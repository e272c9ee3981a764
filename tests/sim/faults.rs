//! What goes wrong below the store, put into its own write connection: a full disk, a statement after which SQLite
//! rolls everything back, and commits that fail, whether or not they were stored.
#![allow(unsafe_code)] // SQLite's hooks, for which rusqlite wants the connection for itself alone

use onceward::store::Store;
use rusqlite::ffi;
use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};

/// So many commits go well before one fails: what a connection's hook is given.
type Good = Cell<u32>;

/// Safe to read: `commit_fails` gives the hooks a counter that stays for the process's life, and only the thread that uses
/// the connection calls them.
unsafe fn is_due(good: *mut c_void) -> bool {
    let good = unsafe { &*good.cast::<Good>() };
    let left = good.get();
    good.set(left.saturating_sub(1));
    left == 0
}

unsafe extern "C" fn refuse(good: *mut c_void) -> c_int {
    c_int::from(unsafe { is_due(good) })
}

unsafe extern "C" fn unheard(good: *mut c_void, _: *mut ffi::sqlite3, _: *const c_char, _: c_int) -> c_int {
    if unsafe { is_due(good) } { ffi::SQLITE_IOERR } else { ffi::SQLITE_OK }
}

/// The commit after `good` more fails; `stored`: its rows are there all the same. Ends with the connection.
pub fn commit_fails(store: &Store, good: u32, stored: bool) {
    let _ = store.write(move |tx| {
        // One more, for the commit of this very piece.
        let good = std::ptr::from_mut(Box::leak(Box::new(Good::new(good + 1)))).cast();
        // Safe: the connection is open and this is its thread; the hooks and their counter outlive it.
        unsafe {
            let db = tx.conn().handle();
            if stored {
                ffi::sqlite3_wal_hook(db, Some(unheard), good);
            } else {
                ffi::sqlite3_commit_hook(db, Some(refuse), good);
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
