package expiry

// Unread describes values that are set but that a kind cannot read, so that their rows never expire, unnoticed.
type Unread struct {
	Condition string // SQL: true of such a row; it never raises
	// Pattern is SQL: what such a value is like, without its digits and letters. 9 is a digit, a is any character but a digit or ASCII's
	// punctuation; what is no text and no number is named by its type.
	Pattern string
}

// patternLength is how much of a value a pattern has.
const patternLength = "40"

// UnreadOf returns the Unread of a kind; zero if the kind can read every value.
func UnreadOf(k Kind) Unread {
	switch k := k.(type) {
	case *Epoch:
		if k.inJSON() {
			return k.unread(k.guardedNumber("t.")+" is not null", "false")
		}
		limit := k.times(earliestSecond)
		return Unread{
			Condition: "(" + k.raw("t.") + " is not null and " + k.raw("t.") + " not between -" + limit + " and " + limit + ")",
			Pattern:   patternOf("(" + k.raw("t.") + ")::text"),
		}
	case *ISO8601:
		if k.inJSON() {
			return k.unread("false", isoReads(k.start()))
		}
		text := inC(k.raw("t."))
		return Unread{
			Condition: "(" + k.raw("t.") + " is not null and not case when " + k.short("t.") + " then " + isoReads(text) + " else false end)",
			Pattern:   quotedPattern(k.raw("t.")),
		}
	case *NumberOrText:
		return k.unread(k.number().guardedNumber("t.")+" is not null", isoReads(k.start()))
	}
	return Unread{}
}

// unread returns the Unread of a value in a document; number and text are the conditions for reading it as a number or a text.
func (v *Value) unread(number, text string) Unread {
	is := "jsonb_typeof(" + v.json("t.") + ")"
	return Unread{
		Condition: "case " + is + " when 'null' then false when 'number' then not (" + number + ") when 'string' then not (" + text + ") else " + is + " is not null end",
		Pattern:   "case " + is + " when 'number' then " + patternOf(v.text("t.")) + " when 'string' then " + quotedPattern(v.text("t.")) + " else " + is + " end",
	}
}

// start is the SQL of as much of a text in a document as is checked.
func (v *Value) start() string { return inC("substr(" + v.text("t.") + ", 1, " + isoLonger + ")") }

func quotedPattern(text string) string { return `'"' || ` + patternOf(text) + ` || '"'` }

// patternOf is the SQL of a text's pattern.
func patternOf(text string) string {
	beginning := inC("left(" + text + ", " + patternLength + ")")
	return "regexp_replace(regexp_replace(" + beginning + ", '[^ -@[-`{-~]', 'a', 'g'), '[0-9]', '9', 'g') || case when octet_length(" + text + ") > " + patternLength + " then '...' else '' end"
}
