package evidence

// maxDepth is how many dimensions an array of PostgreSQL has at most.
const maxDepth = 6

// arrayReader turns an array's text into JSON's.
type arrayReader struct {
	rest   []byte
	values *typedValues
	kind   kind
	mod    int32
}

// read writes the array; ok is false if it is none.
func (a *arrayReader) read(dst []byte) (out []byte, ok bool) {
	if len(a.rest) > 0 && a.rest[0] == '[' { // bounds that do not begin at 1: [0:1]={…}
		for len(a.rest) > 0 && a.rest[0] != '=' {
			a.rest = a.rest[1:]
		}
		a.skip('=')
	}
	out, ok = a.array(dst, 1)
	return out, ok && len(a.rest) == 0
}

func (a *arrayReader) skip(c byte) bool {
	if len(a.rest) == 0 || a.rest[0] != c {
		return false
	}
	a.rest = a.rest[1:]
	return true
}

func (a *arrayReader) array(dst []byte, depth int) (out []byte, ok bool) {
	if depth > maxDepth || !a.skip('{') {
		return dst, false
	}
	dst = append(dst, '[')
	if a.skip('}') {
		return append(dst, ']'), true
	}
	for {
		if len(a.rest) > 0 && a.rest[0] == '{' {
			dst, ok = a.array(dst, depth+1)
		} else {
			dst, ok = a.element(dst)
		}
		switch {
		case !ok:
			return dst, false
		case a.skip('}'):
			return append(dst, ']'), true
		case !a.skip(','):
			return dst, false
		}
		dst = append(dst, ',')
	}
}

// element writes one value, in quotes where it needs them.
func (a *arrayReader) element(dst []byte) ([]byte, bool) {
	quoted := a.skip('"')
	item := a.values.item[:0]
	for {
		if len(a.rest) == 0 {
			return dst, false
		}
		c := a.rest[0]
		if quoted && c == '"' || !quoted && (c == ',' || c == '}') {
			break
		}
		a.rest = a.rest[1:]
		if c == '\\' {
			if len(a.rest) == 0 {
				return dst, false
			}
			c, a.rest = a.rest[0], a.rest[1:]
		}
		item = append(item, c)
	}
	a.values.item = item
	switch {
	case quoted:
		a.rest = a.rest[1:]
	case len(item) == 0:
		return dst, false
	case string(item) == "NULL":
		return append(dst, "null"...), true
	}
	return a.values.scalar(dst, item, a.kind, a.mod), true
}
