// Package osfs is the real file system behind vfs.FS. It holds nothing but the root that names are relative to, and starts
// no goroutine; every method may be called from several at once. Sync is fdatasync: a file's size and data, not its times.
package osfs
