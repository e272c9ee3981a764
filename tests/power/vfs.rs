//! A disk in memory, as SQLite's default VFS. What is written is seen at once by everybody, and is on the platter only
//! once its file is synced; the order of all that happened is kept, so that what a power cut leaves behind can be asked
//! for any moment afterwards. One operation can be made to fail.
#![allow(unsafe_code, unsafe_op_in_unsafe_fn)] // SQLite calls us through raw pointers

use rusqlite::ffi as f;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError};

/// One thing that the disk was asked to do.
#[derive(Clone, Debug)]
pub enum Op {
    Write { file: String, at: usize, bytes: Vec<u8> },
    Cut { file: String, to: usize },
    Sync { file: String },
    Delete { file: String },
}

/// Which operation fails and how.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// Counted from 0 over writes, truncations, syncs and deletions; for a read, over reads.
    pub at: usize,
    /// And all after it.
    pub lasting: bool,
    pub how: How,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// A write, truncation or deletion.
    Write,
    /// A sync; what was to be synced may or may not be on the platter.
    Sync,
    /// A sync, after which the system takes for written what is not.
    SyncForgets,
    /// No room for a write.
    Full,
    Read,
}

/// What is in the files, by name.
pub type Image = BTreeMap<String, Vec<u8>>;

#[derive(Default)]
struct Locks {
    shared: u32,
    reserved: bool,
    pending: bool,
    exclusive: bool,
}

#[derive(Default)]
struct Index {
    regions: Vec<Box<[u64]>>,
    shared: [u32; 8],
    exclusive: [bool; 8],
    users: u32,
}

#[derive(Default)]
struct State {
    files: Image,
    locks: HashMap<String, Locks>,
    indexes: HashMap<String, Index>,
    log: Vec<Op>,
    /// Operations that failed count too.
    ops: usize,
    reads: usize,
    fault: Option<Fault>,
    hit: u32,
    /// Places in the log whose bytes the system has dropped unwritten.
    forgotten: Vec<usize>,
}

/// A disk: all files of one folder.
#[derive(Default)]
pub struct Disk {
    state: Mutex<State>,
}

static DISKS: Mutex<BTreeMap<String, Arc<Disk>>> = Mutex::new(BTreeMap::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Puts a disk with these files where the folder is; whatever was there is gone.
pub fn mount(folder: &Path, files: Image) -> Arc<Disk> {
    register();
    let disk = Arc::new(Disk { state: Mutex::new(State { files, ..State::default() }) });
    lock(&DISKS).insert(folder.display().to_string(), Arc::clone(&disk));
    disk
}

impl Disk {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub fn ops(&self) -> usize {
        self.state().ops
    }

    pub fn reads(&self) -> usize {
        self.state().reads
    }

    pub fn log(&self) -> Vec<Op> {
        self.state().log.clone()
    }

    pub fn forgotten(&self) -> Vec<usize> {
        self.state().forgotten.clone()
    }

    /// What every process sees.
    pub fn live(&self) -> Image {
        self.state().files.clone()
    }

    pub fn fail(&self, fault: Option<Fault>) {
        self.state().fault = fault;
    }

    /// How many operations a fault has met.
    pub fn hit(&self) -> u32 {
        self.state().hit
    }
}

impl State {
    /// Before each operation: its number is up, and the code with which it fails.
    fn step(&mut self, sync: bool) -> Result<(), c_int> {
        let n = self.ops;
        self.ops += 1;
        let Some(fault) = self.fault.filter(|x| n == x.at || (x.lasting && n > x.at)) else { return Ok(()) };
        let code = match (fault.how, sync) {
            (How::Write, false) => f::SQLITE_IOERR_WRITE,
            (How::Full, false) => f::SQLITE_FULL,
            (How::Sync | How::SyncForgets, true) => f::SQLITE_IOERR_FSYNC,
            _ => return Ok(()),
        };
        self.hit += 1;
        Err(code)
    }

    fn apply(&mut self, op: Op) {
        run(&mut self.files, &op);
        self.log.push(op);
    }
}

/// Does one operation to the files.
pub fn run(files: &mut Image, op: &Op) {
    match op {
        Op::Write { file, at, bytes } => {
            let data = files.entry(file.clone()).or_default();
            if data.len() < at + bytes.len() {
                data.resize(at + bytes.len(), 0);
            }
            data[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        Op::Cut { file, to } => files.entry(file.clone()).or_default().resize(*to, 0),
        Op::Sync { .. } => {}
        Op::Delete { file } => drop(files.remove(file)),
    }
}

#[repr(C)]
struct Handle {
    base: f::sqlite3_file,
    open: *mut Open,
}

struct Open {
    disk: Arc<Disk>,
    name: String,
    level: c_int,
    shared: u8,
    exclusive: u8,
    passing: bool,
    read_only: bool,
    mapped: bool,
}

/// Safe: SQLite gives back only what `open` has filled in, and uses a file from one thread at a time.
unsafe fn opened<'a>(file: *mut f::sqlite3_file) -> &'a mut Open {
    &mut *(*file.cast::<Handle>()).open
}

unsafe extern "C" fn close(file: *mut f::sqlite3_file) -> c_int {
    let mut open = Box::from_raw((*file.cast::<Handle>()).open);
    unlock_to(&mut open, f::SQLITE_LOCK_NONE);
    if open.passing {
        open.disk.state().files.remove(&open.name);
    }
    f::SQLITE_OK
}

unsafe extern "C" fn read(file: *mut f::sqlite3_file, to: *mut c_void, size: c_int, at: i64) -> c_int {
    let open = opened(file);
    let mut state = open.disk.state();
    let n = state.reads;
    state.reads += 1;
    if let Some(fault) = state.fault.filter(|x| x.how == How::Read && (n == x.at || (x.lasting && n > x.at)))
    {
        let _ = fault;
        state.hit += 1;
        return f::SQLITE_IOERR_READ;
    }
    let out = std::slice::from_raw_parts_mut(to.cast::<u8>(), size as usize);
    let data = state.files.get(&open.name).map_or(&[][..], |data| data.get(at as usize..).unwrap_or(&[]));
    let have = data.len().min(out.len());
    out[..have].copy_from_slice(&data[..have]);
    out[have..].fill(0);
    if have < out.len() { f::SQLITE_IOERR_SHORT_READ } else { f::SQLITE_OK }
}

unsafe extern "C" fn write(file: *mut f::sqlite3_file, from: *const c_void, size: c_int, at: i64) -> c_int {
    let open = opened(file);
    let bytes = std::slice::from_raw_parts(from.cast::<u8>(), size as usize).to_vec();
    act(open, Op::Write { file: open.name.clone(), at: at as usize, bytes })
}

unsafe extern "C" fn truncate(file: *mut f::sqlite3_file, size: i64) -> c_int {
    let open = opened(file);
    act(open, Op::Cut { file: open.name.clone(), to: size as usize })
}

fn act(open: &Open, op: Op) -> c_int {
    let mut state = open.disk.state();
    match state.step(false) {
        Ok(()) => {
            state.apply(op);
            f::SQLITE_OK
        }
        Err(code) => code,
    }
}

unsafe extern "C" fn sync(file: *mut f::sqlite3_file, _: c_int) -> c_int {
    let open = opened(file);
    let mut state = open.disk.state();
    match state.step(true) {
        Ok(()) => {
            state.apply(Op::Sync { file: open.name.clone() });
            f::SQLITE_OK
        }
        Err(code) => {
            if state.fault.is_some_and(|x| x.how == How::SyncForgets) {
                let mine = |op: &Op| matches!(op, Op::Write { file, .. } | Op::Cut { file, .. } if *file == open.name);
                let synced =
                    state.log.iter().rposition(|op| matches!(op, Op::Sync { file } if *file == open.name));
                let from = synced.map_or(0, |n| n + 1);
                let lost: Vec<usize> = (from..state.log.len()).filter(|n| mine(&state.log[*n])).collect();
                state.forgotten.extend(lost);
            }
            code
        }
    }
}

unsafe extern "C" fn size(file: *mut f::sqlite3_file, out: *mut i64) -> c_int {
    let open = opened(file);
    *out = open.disk.state().files.get(&open.name).map_or(0, |data| data.len() as i64);
    f::SQLITE_OK
}

unsafe extern "C" fn lock_file(file: *mut f::sqlite3_file, level: c_int) -> c_int {
    let open = opened(file);
    if open.level >= level {
        return f::SQLITE_OK;
    }
    // As of fcntl(2) on a descriptor that is open for reading: so a reader that is the last to close leaves the log alone.
    if open.read_only && level > f::SQLITE_LOCK_SHARED {
        return f::SQLITE_IOERR_LOCK;
    }
    let mut state = open.disk.state();
    let locks = state.locks.entry(open.name.clone()).or_default();
    match level {
        f::SQLITE_LOCK_SHARED if locks.pending || locks.exclusive => return f::SQLITE_BUSY,
        f::SQLITE_LOCK_SHARED => locks.shared += 1,
        f::SQLITE_LOCK_RESERVED if locks.reserved => return f::SQLITE_BUSY,
        f::SQLITE_LOCK_RESERVED => locks.reserved = true,
        _ => {
            if locks.exclusive || (locks.reserved && open.level < f::SQLITE_LOCK_RESERVED) {
                return f::SQLITE_BUSY;
            }
            if locks.shared > 1 {
                return f::SQLITE_BUSY;
            }
            (locks.reserved, locks.pending, locks.exclusive) = (true, true, true);
        }
    }
    open.level = level;
    f::SQLITE_OK
}

fn unlock_to(open: &mut Open, level: c_int) {
    let mut state = open.disk.state();
    let locks = state.locks.entry(open.name.clone()).or_default();
    if open.level >= f::SQLITE_LOCK_RESERVED && level < f::SQLITE_LOCK_RESERVED {
        (locks.reserved, locks.pending, locks.exclusive) = (false, false, false);
    }
    if open.level >= f::SQLITE_LOCK_SHARED && level < f::SQLITE_LOCK_SHARED {
        locks.shared -= 1;
    }
    drop(state);
    open.level = open.level.min(level);
}

unsafe extern "C" fn unlock_file(file: *mut f::sqlite3_file, level: c_int) -> c_int {
    unlock_to(opened(file), level);
    f::SQLITE_OK
}

unsafe extern "C" fn reserved(file: *mut f::sqlite3_file, out: *mut c_int) -> c_int {
    let open = opened(file);
    *out = c_int::from(open.disk.state().locks.get(&open.name).is_some_and(|locks| locks.reserved));
    f::SQLITE_OK
}

unsafe extern "C" fn control(_: *mut f::sqlite3_file, _: c_int, _: *mut c_void) -> c_int {
    f::SQLITE_NOTFOUND
}

unsafe extern "C" fn sector(_: *mut f::sqlite3_file) -> c_int {
    4096
}

unsafe extern "C" fn traits(_: *mut f::sqlite3_file) -> c_int {
    f::SQLITE_IOCAP_POWERSAFE_OVERWRITE
}

unsafe extern "C" fn map(
    file: *mut f::sqlite3_file,
    region: c_int,
    size: c_int,
    extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    let open = opened(file);
    let mut state = open.disk.state();
    let index = state.indexes.entry(open.name.clone()).or_default();
    if !std::mem::replace(&mut open.mapped, true) {
        index.users += 1;
    }
    let region = region as usize;
    if index.regions.len() <= region && extend == 0 {
        *out = null_mut();
        return f::SQLITE_OK;
    }
    while index.regions.len() <= region {
        index.regions.push(vec![0; size as usize / 8].into_boxed_slice());
    }
    // The box stays where it is until the last connection lets go.
    *out = index.regions[region].as_mut_ptr().cast();
    f::SQLITE_OK
}

unsafe extern "C" fn lock_index(
    file: *mut f::sqlite3_file,
    from: c_int,
    count: c_int,
    flags: c_int,
) -> c_int {
    let open = opened(file);
    let mut state = open.disk.state();
    let index = state.indexes.entry(open.name.clone()).or_default();
    let slots = from as usize..(from + count) as usize;
    let alone = flags & f::SQLITE_SHM_EXCLUSIVE != 0;
    if flags & f::SQLITE_SHM_UNLOCK != 0 {
        for n in slots {
            if alone && open.exclusive & (1 << n) != 0 {
                index.exclusive[n] = false;
                open.exclusive &= !(1 << n);
            } else if !alone && open.shared & (1 << n) != 0 {
                index.shared[n] -= 1;
                open.shared &= !(1 << n);
            }
        }
        return f::SQLITE_OK;
    }
    for n in slots.clone() {
        let mine = u32::from(open.shared & (1 << n) != 0);
        if (index.exclusive[n] && open.exclusive & (1 << n) == 0) || (alone && index.shared[n] > mine) {
            return f::SQLITE_BUSY;
        }
    }
    for n in slots {
        if alone {
            index.exclusive[n] = true;
            open.exclusive |= 1 << n;
        } else if open.shared & (1 << n) == 0 {
            index.shared[n] += 1;
            open.shared |= 1 << n;
        }
    }
    f::SQLITE_OK
}

unsafe extern "C" fn barrier(_: *mut f::sqlite3_file) {
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

unsafe extern "C" fn unmap(file: *mut f::sqlite3_file, _: c_int) -> c_int {
    let open = opened(file);
    let mut state = open.disk.state();
    if let Some(index) = state.indexes.get_mut(&open.name) {
        for n in 0..8 {
            if open.exclusive & (1 << n) != 0 {
                index.exclusive[n] = false;
            }
            if open.shared & (1 << n) != 0 {
                index.shared[n] -= 1;
            }
        }
        index.users -= u32::from(std::mem::take(&mut open.mapped));
        // Who comes first after the last one begins a new index.
        if index.users == 0 {
            state.indexes.remove(&open.name);
        }
    }
    (open.shared, open.exclusive) = (0, 0);
    f::SQLITE_OK
}

/// The disk and the name on it.
unsafe fn place(path: *const c_char) -> Option<(Arc<Disk>, String)> {
    if path.is_null() {
        return None;
    }
    let (folder, name) = CStr::from_ptr(path).to_str().ok()?.rsplit_once('/')?;
    Some((lock(&DISKS).get(folder)?.clone(), name.to_string()))
}

unsafe extern "C" fn open(
    _: *mut f::sqlite3_vfs,
    path: *const c_char,
    file: *mut f::sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    (*file).pMethods = std::ptr::null();
    let passing = flags & f::SQLITE_OPEN_DELETEONCLOSE != 0;
    let (disk, name) = match place(path) {
        Some(place) => place,
        // A passing file of SQLite's own: nothing of it has to stay.
        None if path.is_null() => (Arc::default(), "passing".to_string()),
        None => return f::SQLITE_CANTOPEN,
    };
    {
        let mut state = disk.state();
        if !state.files.contains_key(&name) {
            // What the product makes by itself before SQLite opens it is made on the real file system.
            let real =
                !path.is_null() && CStr::from_ptr(path).to_str().is_ok_and(|path| Path::new(path).exists());
            if flags & f::SQLITE_OPEN_CREATE == 0 && !real {
                return f::SQLITE_CANTOPEN;
            }
            state.files.insert(name.clone(), Vec::new());
        }
    }
    let read_only = flags & f::SQLITE_OPEN_READONLY != 0;
    let open = Open { disk, name, level: 0, shared: 0, exclusive: 0, passing, read_only, mapped: false };
    (*file.cast::<Handle>()).open = Box::into_raw(Box::new(open));
    (*file).pMethods = METHODS.get().map_or(std::ptr::null(), |methods| &methods.0);
    if !out.is_null() {
        *out = flags;
    }
    f::SQLITE_OK
}

unsafe extern "C" fn delete(_: *mut f::sqlite3_vfs, path: *const c_char, _: c_int) -> c_int {
    let Some((disk, name)) = place(path) else { return f::SQLITE_IOERR_DELETE };
    let mut state = disk.state();
    if !state.files.contains_key(&name) {
        return f::SQLITE_IOERR_DELETE_NOENT;
    }
    match state.step(false) {
        Ok(()) => {
            state.apply(Op::Delete { file: name });
            f::SQLITE_OK
        }
        Err(_) => f::SQLITE_IOERR_DELETE,
    }
}

unsafe extern "C" fn access(_: *mut f::sqlite3_vfs, path: *const c_char, _: c_int, out: *mut c_int) -> c_int {
    *out = c_int::from(place(path).is_some_and(|(disk, name)| {
        // An empty log is as good as none.
        disk.state().files.contains_key(&name)
    }));
    f::SQLITE_OK
}

unsafe extern "C" fn full_path(
    _: *mut f::sqlite3_vfs,
    path: *const c_char,
    room: c_int,
    out: *mut c_char,
) -> c_int {
    let bytes = CStr::from_ptr(path).to_bytes_with_nul();
    if bytes.len() > room as usize {
        return f::SQLITE_CANTOPEN;
    }
    std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), out, bytes.len());
    f::SQLITE_OK
}

unsafe extern "C" fn random(_: *mut f::sqlite3_vfs, size: c_int, out: *mut c_char) -> c_int {
    for n in 0..size as usize {
        *out.add(n) = fastrand::u8(..) as c_char;
    }
    size
}

unsafe extern "C" fn sleep(_: *mut f::sqlite3_vfs, micros: c_int) -> c_int {
    std::thread::sleep(std::time::Duration::from_micros(micros as u64));
    micros
}

unsafe extern "C" fn time(_: *mut f::sqlite3_vfs, out: *mut f64) -> c_int {
    *out = 1_800_000_000_000.0 / 86_400_000.0 + 2_440_587.5;
    f::SQLITE_OK
}

struct Methods(f::sqlite3_io_methods);

static METHODS: OnceLock<Methods> = OnceLock::new();

fn register() {
    static ONCE: Once = Once::new();
    // Safe: both tables are filled in as SQLite's header says, and live as long as the process.
    ONCE.call_once(|| unsafe {
        let mut methods: f::sqlite3_io_methods = std::mem::zeroed();
        methods.iVersion = 2;
        methods.xClose = Some(close);
        methods.xRead = Some(read);
        methods.xWrite = Some(write);
        methods.xTruncate = Some(truncate);
        methods.xSync = Some(sync);
        methods.xFileSize = Some(size);
        methods.xLock = Some(lock_file);
        methods.xUnlock = Some(unlock_file);
        methods.xCheckReservedLock = Some(reserved);
        methods.xFileControl = Some(control);
        methods.xSectorSize = Some(sector);
        methods.xDeviceCharacteristics = Some(traits);
        methods.xShmMap = Some(map);
        methods.xShmLock = Some(lock_index);
        methods.xShmBarrier = Some(barrier);
        methods.xShmUnmap = Some(unmap);
        let _ = METHODS.set(Methods(methods));
        let mut vfs: f::sqlite3_vfs = std::mem::zeroed();
        vfs.iVersion = 1;
        vfs.szOsFile = size_of::<Handle>() as c_int;
        vfs.mxPathname = 1024;
        vfs.zName = c"power".as_ptr();
        vfs.xOpen = Some(open);
        vfs.xDelete = Some(delete);
        vfs.xAccess = Some(access);
        vfs.xFullPathname = Some(full_path);
        vfs.xRandomness = Some(random);
        vfs.xSleep = Some(sleep);
        vfs.xCurrentTime = Some(time);
        let code = f::sqlite3_vfs_register(Box::into_raw(Box::new(vfs)), 1);
        assert_eq!(code, f::SQLITE_OK, "the disk is registered");
    });
}

/// What is left when every process dies at once and the machine goes on: what was seen, and how it came about.
pub struct Left {
    files: Image,
    pub log: Vec<Op>,
    pub forgotten: Vec<usize>,
}

impl Disk {
    pub fn left(&self) -> Left {
        Left { files: self.live(), log: self.log(), forgotten: self.forgotten() }
    }
}

/// The same disk under new processes.
pub fn mount_again(folder: &Path, left: Left) -> Arc<Disk> {
    let disk = mount(folder, left.files);
    let mut state = disk.state();
    (state.ops, state.log, state.forgotten) = (left.log.len(), left.log, left.forgotten);
    drop(state);
    disk
}
