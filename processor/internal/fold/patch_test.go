package fold

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// mergeOne merges one patch.
func mergeOne(document, patch []byte) []byte {
	v, p := value{raw: document}, parse(patch, nil, true)
	v.open(p)
	v.merge(p, false)
	return v.append(nil)
}

// mergeSlowly merges a patch as a step does without keeping anything: it copies the bytes of each level.
func mergeSlowly(document, patch []byte) []byte {
	type one struct {
		name string
		raw  []byte
	}
	find := func(in []one, name string) int {
		return slices.IndexFunc(in, func(o one) bool { return o.name == name })
	}
	list := func(object []byte) (all []one) {
		if i := skipSpace(object, 0); i == len(object) || object[i] != '{' {
			return nil
		}
		for name, raw := range Members(object) {
			if i := find(all, name); i >= 0 {
				all[i].raw = raw
			} else {
				all = append(all, one{name, raw})
			}
		}
		return all
	}
	all := list(document)
	for _, p := range list(patch) {
		i := find(all, p.name)
		switch {
		case string(p.raw) == "null":
			all = slices.DeleteFunc(all, func(o one) bool { return o.name == p.name })
			continue
		case i < 0:
			i = len(all)
			all = append(all, one{name: p.name})
		}
		if p.raw[0] == '{' {
			p.raw = mergeSlowly(all[i].raw, p.raw)
		}
		all[i].raw = p.raw
	}
	var members [][]byte
	for _, o := range all {
		members = append(members, slices.Concat(quote(o.name), []byte(":"), o.raw))
	}
	return slices.Concat([]byte("{"), bytes.Join(members, []byte(",")), []byte("}"))
}

// TestMergeBytes: any patches of one document after each other leave the same bytes as one by one, of which the
// length is known before each. A patch that is only tried changes nothing.
func TestMergeBytes(t *testing.T) {
	names := []string{`a`, `b`, `c`, `t\u0074l`, `ttl`, `<\u00e9\"`, "é", `\ud800`, "\u2028", `\u2028`, ``}
	var object func(levels int) *rapid.Generator[string]
	object = func(levels int) *rapid.Generator[string] {
		return rapid.Custom(func(t *rapid.T) string {
			space := rapid.SampledFrom([]string{"", "", "", " ", "\n\t"})
			var b strings.Builder
			for i := range rapid.IntRange(0, 4).Draw(t, "members") {
				if i > 0 {
					b.WriteString(space.Draw(t, "space") + ",")
				}
				value := rapid.SampledFrom([]string{`null`, `1.0`, `"}"`, `[ {"a":null}]`, ``, ``}).Draw(t, "value")
				if value == "" {
					value = "{}"
					if levels > 1 {
						value = object(levels-1).Draw(t, "object")
					}
				}
				fmt.Fprintf(&b, `%s"%s"%s:%s%s`, space.Draw(t, "space"), rapid.SampledFrom(names).Draw(t, "name"),
					space.Draw(t, "space"), space.Draw(t, "space"), value)
			}
			return "{" + b.String() + space.Draw(t, "space") + "}"
		})
	}
	rapid.Check(t, func(t *rapid.T) {
		document := object(4).Draw(t, "document")
		v, want := value{raw: []byte(" " + document + "\n")}, []byte(" "+document+"\n")
		for range rapid.IntRange(1, 6).Draw(t, "patches") {
			patch := []byte(object(4).Draw(t, "patch"))
			p := parse(patch, nil, true)
			v.open(p)
			size := v.merge(p, true)
			if got := v.append(nil); !bytes.Equal(got, want) {
				t.Fatalf("%s is tried on %q, and leaves %q", patch, want, got)
			}
			if rapid.Bool().Draw(t, "only tried") {
				continue
			}
			next := mergeSlowly(want, patch)
			v.merge(p, false)
			if got := v.append(nil); !bytes.Equal(got, next) || size != len(next) || v.size() != size {
				t.Fatalf("%s merged into %q is %q, of %d bytes, in advance %d; want %q of %d bytes", patch, want, got,
					v.size(), size, next, len(next))
			}
			want = next
		}
	})
}

// BenchmarkMerge merges patches into documents that are wide, small and deep.
func BenchmarkMerge(b *testing.B) {
	var wide strings.Builder
	for i := range 60_000 {
		fmt.Fprintf(&wide, `,"member-%d":{"name":"item %d","n":%d}`, i, i, i)
	}
	var small strings.Builder
	for i := range 20 {
		fmt.Fprintf(&small, `,"member-%d":"a value of %d and so on, and so on"`, i, i)
	}
	object := func(b strings.Builder) string { return "{" + b.String()[1:] + "}" }
	deep := func(value string) string { return strings.Repeat(`{"a":`, 90) + value + strings.Repeat(`}`, 90) }
	for _, c := range []struct{ name, object, patch string }{
		{"60,000 members", object(wide), `{"member-30000":{"n":1}}`},
		{"1 KB", object(small), `{"member-3":1,"new":true}`},
		{"90 levels", deep(`"` + strings.Repeat("x", 900<<10) + `"`), deep(`1`)},
		{"90 levels on 90 wide ones", strings.Repeat(`{"b":1,"c":{"d":2},"a":`, 90) + `1` + strings.Repeat(`}`, 90),
			deep(`{"e":1}`)},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.object)))
			for range b.N {
				mergeOne([]byte(c.object), []byte(c.patch))
			}
		})
	}
}
