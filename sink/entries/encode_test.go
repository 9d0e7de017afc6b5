package entries_test

import (
	"reflect"
	"testing"

	"github.com/seed18712806/lapse/sink/entries"
)

// TestEncode: a condition or order that is encoded and read again is the same.
func TestEncode(t *testing.T) {
	for _, text := range []string{`"c1"`, `null`, `true`, `-2.5e9`, `{"in":["b",1,null,"<&>\u0000",true]}`,
		`{"prefix":""}`, `{"prefix":"é"}`,
		`{"gt":1}`, `{"gte":"a","lt":"b"}`, `{"lte":0}`} {
		first, err := entries.ParseWhere(map[string][]byte{"/a": []byte(text)})
		if err != nil {
			t.Fatal(err)
		}
		again, err := entries.ParseWhere(map[string][]byte{"/a": first[0].Encode()})
		if err != nil || !reflect.DeepEqual(again, first) {
			t.Errorf("%s is encoded as %s: %+v, %v, want %+v", text, first[0].Encode(), again, err, first)
		}
	}
	if _, err := entries.ParseWhere(map[string][]byte{"/a": entries.Condition{Pointer: "/a"}.Encode()}); err == nil {
		t.Error("a condition without members is read")
	}
	for _, order := range []string{"", "deadline", "id", "/a", "-/a/b"} {
		if o, err := entries.ParseOrder(order); err != nil || o.String() != order {
			t.Errorf("order %q is %+v, %q, %v", order, o, o.String(), err)
		}
	}
}
