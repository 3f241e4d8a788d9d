package rxevm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// fresh is how long an image is used before the mirror is queried for newer packages.
const fresh = 24 * time.Hour

// Image is a system for the machine to boot, in a folder of the cache. It is read-only; a process
// that boots it holds its lock, which prevents its removal.
type Image struct {
	// Dir is the folder.
	Dir string
	// Key identifies the versions of its packages and the recipe.
	Key string
}

// latest is the state of the cache between runs.
type latest struct {
	Key    string    // of the image in use
	Recipe string    // that made it
	Asked  time.Time // time of the mirror's answer
}

// CacheDir returns the folder for images: VERBENA_RXEVM_CACHE, by default verbena/rxevm in the
// user's cache folder. It creates the folder if necessary.
func CacheDir() (string, error) {
	dir := os.Getenv("VERBENA_RXEVM_CACHE")
	if dir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("rxevm: no folder for the image: %w; set VERBENA_RXEVM_CACHE", err)
		}
		dir = filepath.Join(base, "verbena", "rxevm")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return dir, os.MkdirAll(dir, 0o755)
}

// Prepare returns the image of today's packages, from the cache or newly made (which fetches 150
// MB and takes about a minute). It blocks until then or until ctx ends; of several processes one
// works and the others wait. Without a network it uses the existing image. It reports progress
// through say.
func Prepare(ctx context.Context, say func(format string, args ...any)) (*Image, error) {
	dir, err := CacheDir()
	if err != nil {
		return nil, err
	}
	unlock, err := lock(ctx, filepath.Join(dir, "lock"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = unlock() }() // closing the descriptor releases the lock in any case
	have := remembered(dir)
	cached := &Image{Dir: filepath.Join(dir, "image-"+have.Key), Key: have.Key}
	usable := have.Recipe == recipeID() && complete(cached.Dir)
	if usable && time.Since(have.Asked) < fresh {
		return cached, nil
	}
	if err := Missing(); err != nil {
		return nil, err
	}
	a, err := newApt(filepath.Join(dir, "apt"))
	if err != nil {
		return nil, err
	}
	names, err := a.current(ctx, packages...)
	if err != nil {
		if usable && ctx.Err() == nil {
			say("no answer from the mirror (%v): using the image of %s", err, have.Asked.Format(time.DateOnly))
			return cached, nil
		}
		return nil, fmt.Errorf("%w: no image in %s, and none can be made: %w", ErrNotHere, dir, err)
	}
	img := &Image{Key: keyOf(names)}
	img.Dir = filepath.Join(dir, "image-"+img.Key)
	if !complete(img.Dir) {
		say("making the image %s of %d packages", img.Key, len(names))
		began := time.Now()
		if err := img.make(ctx, a, dir); err != nil {
			return nil, err
		}
		say("made it in %v", time.Since(began).Round(time.Second))
	}
	text, err := json.Marshal(latest{Key: img.Key, Recipe: recipeID(), Asked: time.Now()})
	if err != nil {
		return nil, err
	}
	if err := replace(filepath.Join(dir, "latest.json"), text); err != nil {
		return nil, err
	}
	return img, prune(dir, img.Dir)
}

// remembered returns the zero value where no readable state is stored.
func remembered(dir string) (have latest) {
	text, err := os.ReadFile(filepath.Join(dir, "latest.json"))
	if err != nil || json.Unmarshal(text, &have) != nil {
		return latest{}
	}
	return have
}

// complete reports whether an image is complete: it appears under its name atomically, but the
// user may have removed parts of it by hand.
func complete(dir string) bool {
	for _, name := range []string{rootName, kernelName, modulesName, manifestName, lockName} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return false
		}
	}
	return true
}

// make fetches and builds, in a folder that gets its name only when it is complete.
func (img *Image) make(ctx context.Context, a *apt, dir string) error {
	debs, err := a.fetch(ctx, packages...)
	if err != nil {
		return err
	}
	temp, err := os.MkdirTemp(dir, "new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	if err := os.Chmod(temp, 0o755); err != nil {
		return err
	}
	if err := build(ctx, debs, temp); err != nil {
		return err
	}
	if err := os.RemoveAll(img.Dir); err != nil {
		return err
	}
	if err := os.Rename(temp, img.Dir); err != nil {
		return err
	}
	return os.RemoveAll(filepath.Join(a.dir, "cache"))
}

// prune removes the other images, except those in use by a machine, and the remains of a killed
// build. The caller holds the cache's lock.
func prune(dir, keep string) error {
	var failed error
	for _, pattern := range []string{"image-*", "new-*"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return err
		}
		for _, old := range found {
			if old == keep {
				continue
			}
			if f, err := os.Open(filepath.Join(old, lockName)); err == nil {
				used := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil
				_ = f.Close() // nothing was written
				if used {
					continue
				}
			}
			failed = errors.Join(failed, os.RemoveAll(old))
		}
	}
	return failed
}

// use takes the image's lock until the returned file is closed.
func (img *Image) use() (*os.File, error) {
	f, err := os.Open(filepath.Join(img.Dir, lockName))
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
		_ = f.Close() // the failure is reported already
		return nil, fmt.Errorf("rxevm: image %s is being removed: %w", img.Key, err)
	}
	return f, nil
}

// modules returns the early modules, paths below the root, in order.
func (img *Image) modules() ([]string, error) {
	text, err := os.ReadFile(filepath.Join(img.Dir, modulesName))
	return strings.Fields(string(text)), err
}

// lock takes the lock in file, or gives up when ctx ends.
func lock(ctx context.Context, file string) (unlock func() error, err error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	// flock has no form with a context.
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f.Close, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			_ = f.Close() // the failure is reported already
			return nil, fmt.Errorf("rxevm: locking %s: %w", file, err)
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			_ = f.Close() // as above
			return nil, fmt.Errorf("rxevm: waiting for another process that prepares the image: %w", ctx.Err())
		}
	}
}

// replace writes a file atomically: a reader sees the old text or the new.
func replace(name string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(name), "new-")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}
