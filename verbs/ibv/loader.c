//go:build linux && cgo && !portable

/* Loading: dlopen, and dlsym into a table. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include "shim.h"

static int open_library(const char *path, void **handle, char *what)
{
	/* RTLD_LOCAL: two providers with different libraries must not see each other's symbols.
	 * RTLD_NOW: a library with a missing symbol fails here and not during a batch. */
	*handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (*handle)
		return SHIM_LOADED;
	const char *why = dlerror();
	snprintf(what, SHIM_WHAT, "%s", why ? why : "unknown reason");
	return SHIM_NO_LIBRARY;
}

/* The named version if the library has it, otherwise any symbol with the name: a library without
 * versions (a static build, another C library) has one. */
static void *find(void *handle, const char *name, const char *version)
{
	void *f = NULL;
#ifdef __GLIBC__
	f = dlvsym(handle, name, version);
#endif
	return f ? f : dlsym(handle, name);
}

/* A member of the table is set through memcpy: C has no conversion between
 * pointers to functions and to objects. */
#define SHIM_FIND(needed, version, result, name, args)                          \
	{                                                                       \
		void *f = find(t->handle, #name, version);                      \
		if (!f && needed) {                                             \
			snprintf(what, SHIM_WHAT, "%s %s", #name, version);     \
			dlclose(t->handle);                                     \
			return SHIM_NO_SYMBOL;                                  \
		}                                                               \
		memcpy(&t->name, &f, sizeof(f));                                \
	}

int shim_load_verbs(const char *path, struct shim_verbs *t, char what[SHIM_WHAT])
{
	int r = open_library(path, &t->handle, what);
	if (r != SHIM_LOADED)
		return r;
	SHIM_VERBS(SHIM_FIND)
	return SHIM_LOADED;
}

int shim_load_cm(const char *path, struct shim_cm *t, char what[SHIM_WHAT])
{
	int r = open_library(path, &t->handle, what);
	if (r != SHIM_LOADED)
		return r;
	SHIM_RDMACM(SHIM_FIND)
	return SHIM_LOADED;
}
