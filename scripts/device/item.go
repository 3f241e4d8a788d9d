package main

import (
	"fmt"
	"reflect"
)

// Item is a value, or the reason why it is unknown.
type Item[T any] struct {
	Value   *T     `json:"value,omitempty"`
	Unknown string `json:"unknown,omitempty"`
}

func known[T any](v T) Item[T] { return Item[T]{Value: &v} }

func unknown[T any](format string, args ...any) Item[T] {
	return Item[T]{Unknown: fmt.Sprintf(format, args...)}
}

// item is known(v), or unknown with the error.
func item[T any](v T, err error) Item[T] {
	if err != nil {
		return unknown[T]("%v", err)
	}
	return known(v)
}

// blank is an Item of any type.
type blank interface {
	// explain gives an item that has neither a value nor a reason the reason why.
	explain(why string)
	// read returns the value, or the reason.
	read() (value any, why string)
}

func (i *Item[T]) explain(why string) {
	if i.Value == nil && i.Unknown == "" {
		i.Unknown = why
	}
}

func (i *Item[T]) read() (value any, why string) {
	if i.Value == nil {
		return nil, i.Unknown
	}
	return *i.Value, ""
}

// explainAll gives the reason why to all items below v, a pointer, that have none.
func explainAll(v any, why string) {
	each(reflect.ValueOf(v), "", func(v reflect.Value, _ string) {
		if b, ok := v.Addr().Interface().(blank); ok {
			b.explain(why)
		}
	})
}

// each calls f with every value below v, a pointer, that can be changed, those that contain others first. A
// value's tag is that of the nearest field with a tag "mask".
func each(v reflect.Value, tag string, f func(v reflect.Value, tag string)) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			each(v.Elem(), tag, f)
		}
		return
	case reflect.Struct:
		f(v, tag)
		for i := range v.NumField() {
			field := tag
			if t, ok := v.Type().Field(i).Tag.Lookup("mask"); ok {
				field = t
			}
			if v.Type().Field(i).IsExported() {
				each(v.Field(i), field, f)
			}
		}
		return
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			each(v.Index(i), tag, f)
		}
	}
	f(v, tag)
}
