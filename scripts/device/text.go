package main

import (
	"cmp"
	"fmt"
	"io"
	"reflect"
	"strings"
	"text/tabwriter"
	"time"
)

// write renders the report for people: its sections with their fields, in the order of the structs,
// under the names of the JSON.
func (r *Report) write(w io.Writer) error {
	p := &printer{}
	fmt.Fprintf(&p.b, "Verbena on %s, %s (report %d)\n", strings.Join(r.Devices, " and "), r.Date, r.Version)
	v := reflect.ValueOf(r).Elem()
	for i := range v.NumField() {
		switch name, field := label(v.Type().Field(i)), v.Field(i); field.Kind() {
		case reflect.Struct:
			fmt.Fprintf(&p.b, "\n== %s\n", name)
			p.fields(field, "")
		case reflect.Slice:
			if field.Type().Elem().Kind() == reflect.Struct {
				fmt.Fprintf(&p.b, "\n== %s\n", name)
				p.table(field, "")
			}
		}
	}
	_, err := io.WriteString(w, p.b.String())
	return err
}

// printer renders values.
type printer struct{ b strings.Builder }

// label is the name of a field in the text.
func label(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return strings.ReplaceAll(strings.TrimSuffix(cmp.Or(name, f.Name), "_ns"), "_", " ")
}

func (p *printer) fields(v reflect.Value, indent string) {
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.IsExported() {
			name := label(f)
			if note := f.Tag.Get("note"); note != "" {
				name += " (" + note + ")"
			}
			p.field(name, v.Field(i), indent)
		}
	}
}

func (p *printer) field(name string, v reflect.Value, indent string) {
	if b, ok := v.Addr().Interface().(blank); ok {
		value, why := b.read()
		if value == nil {
			fmt.Fprintf(&p.b, "%s%s: unknown: %s\n", indent, name, why)
			return
		}
		there := reflect.New(reflect.TypeOf(value)).Elem()
		there.Set(reflect.ValueOf(value))
		v = there
	}
	switch {
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct && nested(v.Type().Elem()):
		for i := range v.Len() {
			fmt.Fprintf(&p.b, "%s%s %d:\n", indent, name, i)
			p.fields(v.Index(i), indent+"  ")
		}
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct && v.Len() > 0:
		fmt.Fprintf(&p.b, "%s%s:\n", indent, name)
		p.table(v, indent+"  ")
	case v.Kind() == reflect.Struct && !flat(v):
		fmt.Fprintf(&p.b, "%s%s:\n", indent, name)
		p.fields(v, indent+"  ")
	default:
		fmt.Fprintf(&p.b, "%s%s: %s\n", indent, name, cell(v))
	}
}

// nested reports whether a struct has items or structs, which no table can hold.
func nested(t reflect.Type) bool {
	for i := range t.NumField() {
		if t.Field(i).Type.Kind() == reflect.Struct {
			return true
		}
	}
	return false
}

// flat reports whether v is printed in one line: it has many plain fields, of which those that are 0 say
// nothing.
func flat(v reflect.Value) bool {
	const many = 12
	return !nested(v.Type()) && v.NumField() > many || v.Type() == reflect.TypeFor[time.Time]()
}

// table prints a slice of structs, without the columns that are empty in all rows.
func (p *printer) table(v reflect.Value, indent string) {
	t := v.Type().Elem()
	var used []int
	for i := range t.NumField() {
		for row := range v.Len() {
			if t.Field(i).Type.Kind() != reflect.String || v.Index(row).Field(i).String() != "" {
				used = append(used, i)
				break
			}
		}
	}
	w := tabwriter.NewWriter(&p.b, 0, 0, 2, ' ', tabwriter.TabIndent)
	for n, i := range used {
		fmt.Fprintf(w, "%s%s", first(n, indent), label(t.Field(i)))
	}
	fmt.Fprintln(w)
	for row := range v.Len() {
		broken := v.Index(row).FieldByName("Unknown")
		for n, i := range used {
			text := cell(v.Index(row).Field(i))
			if broken.IsValid() && broken.String() != "" && v.Index(row).Field(i).IsZero() {
				text = "?" // and not 0
			}
			fmt.Fprintf(w, "%s%s", first(n, indent), text)
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush() // to a strings.Builder, which does not fail
}

// first is what comes before column n of a table.
func first(n int, indent string) string {
	if n == 0 {
		return indent
	}
	return "\t"
}

// cell renders a value in one line.
func cell(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case time.Duration:
		if x == 0 {
			return "-"
		}
		return short(x)
	case []string:
		return cmp.Or(strings.Join(x, ", "), "none")
	case string:
		return cmp.Or(strings.ReplaceAll(x, "\n", "; "), "-")
	case fmt.Stringer:
		return x.String()
	}
	if v.Kind() == reflect.Slice && v.Len() == 0 {
		return "none"
	}
	if v.Kind() == reflect.Struct {
		var parts []string
		for i := range v.NumField() {
			if f := v.Field(i); v.Type().Field(i).IsExported() && !f.IsZero() {
				parts = append(parts, label(v.Type().Field(i))+" "+cell(f))
			}
		}
		return strings.Join(parts, ", ")
	}
	return fmt.Sprint(v.Interface())
}

// short is a duration with three digits.
func short(d time.Duration) string {
	for unit := time.Duration(1); unit < time.Hour; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit).String()
		}
	}
	return d.String()
}
