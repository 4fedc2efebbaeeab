"""The subject index on raw memory; `subject_index.py` is the plain twin and says what it means."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memchr, memcmp, memcpy, memset

from slipstream.log.keyed_hash cimport folded, with_text
from slipstream.log.memory cimport resized
from slipstream.log.subject_shape cimport Shape
from slipstream.wire.patterns cimport PatternTrie
from slipstream.wire.subjects cimport has_wildcard, is_pattern, matches

from slipstream.log.hash_key import new_key
from slipstream.log.subject_shape import form_of

cdef extern from *:
    void __builtin_prefetch(const void *address) noexcept

cdef Py_ssize_t FEW_SUBJECTS = 256
cdef Py_ssize_t MANY_SUBJECTS = 4096
cdef Py_ssize_t SHAPES_KEPT = 4

# An open-addressed table, at most half full. A slot has the hash beside the id, so that looking past
# a slot of another subject does not touch that one's text. Everything else about a subject lies in
# one place by its id: a message that comes touches all of it, in one cache line.
cdef Py_ssize_t FIRST_SLOTS = 16

# How many names of a block are hashed ahead: their slots come from memory meanwhile.
DEF AHEAD = 16


cdef inline bint _is(const Subject *subject, const char *text, Py_ssize_t size) noexcept:
    """Whether it has this text; one that has gone has none."""
    return subject.text != NULL and subject.size == size and memcmp(subject.text, text, size) == 0


cdef class SubjectIndex:
    def __cinit__(self):
        self._slots = 0
        self._table = NULL
        self._subjects = NULL
        self._free = NULL
        self._shapes = {}
        self._key = new_key()

    def __dealloc__(self):
        cdef Py_ssize_t i
        for i in range(self._ids):
            free(self._subjects[i].text)
        free(self._table)
        free(self._subjects)
        free(self._free)

    cdef inline unsigned int _hash(self, const char *text, Py_ssize_t size) noexcept:
        return folded(with_text(1, self._key, text, size), self._key)

    def probes(self, bytes subject):
        cdef const char *text = PyBytes_AS_STRING(subject)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(subject)
        cdef unsigned int hash = self._hash(text, size)
        if self._slots == 0:
            return 0
        return ((self._slot_of(text, size, hash) - <Py_ssize_t> hash) & (self._slots - 1)) + 1

    cdef void _grow_ids(self) except *:
        cdef Py_ssize_t n = self._capacity + (self._capacity >> 1) + 8
        self._subjects = <Subject *> resized(self._subjects, n * sizeof(Subject))
        self._capacity = n

    cdef void _grow_table(self, Py_ssize_t slots) except *:
        cdef Slot *old = self._table
        cdef Slot *table = <Slot *> calloc(slots, sizeof(Slot))
        cdef Py_ssize_t i
        cdef Py_ssize_t at
        if table == NULL:
            raise MemoryError()
        for i in range(self._slots):
            if old[i].holder:
                at = old[i].hash & (slots - 1)
                while table[at].holder:
                    at = (at + 1) & (slots - 1)
                table[at] = old[i]
        free(old)
        self._table = table
        self._slots = slots

    cdef void _make_room(self, Py_ssize_t subjects) except *:
        """Let the table be at most half full with so many more subjects."""
        cdef Py_ssize_t slots = max(self._slots, FIRST_SLOTS)
        while 2 * (self._ids - self._free_count + subjects) > slots:
            slots *= 2
        if slots != self._slots:
            self._grow_table(slots)

    cdef Py_ssize_t _slot_of(self, const char *text, Py_ssize_t size, unsigned int hash) noexcept:
        """The slot that holds this text, or the empty one where it would go; there is a table."""
        cdef Py_ssize_t at = hash & (self._slots - 1)
        cdef unsigned int id
        while self._table[at].holder:
            if self._table[at].hash == hash:
                id = self._table[at].holder - 1
                if _is(&self._subjects[id], text, size):
                    return at
            at = (at + 1) & (self._slots - 1)
        return at

    cdef inline bint _is_latest(self, const char *text, Py_ssize_t size) noexcept:
        """Whether this is the subject of the message before: of one stream it often is."""
        return self._latest < self._ids and _is(&self._subjects[self._latest], text, size)

    cdef long long _intern(self, const char *text, Py_ssize_t size) except -1:
        if self._is_latest(text, size):
            return self._latest
        self._latest = self._intern_hashed(text, size, self._hash(text, size))
        return self._latest

    cdef long long _intern_hashed(self, const char *text, Py_ssize_t size, unsigned int hash) except -1:
        cdef Py_ssize_t at
        cdef Py_ssize_t id
        cdef char *copy
        if size > 0xFFFF:
            raise ValueError("a subject is longer than 65,535 bytes")
        if self._slots == 0:
            self._grow_table(FIRST_SLOTS)
        at = self._slot_of(text, size, hash)
        if self._table[at].holder:
            return self._table[at].holder - 1
        copy = <char *> malloc(size if size else 1)
        if copy == NULL:
            raise MemoryError()
        memcpy(copy, text, size)
        if self._free_count:
            self._free_count -= 1
            id = self._free[self._free_count]
        else:
            if self._ids == self._capacity:
                self._grow_ids()
            id = self._ids
            self._ids += 1
        self._birth += 1
        self._subjects[id] = Subject(copy, 0, 0, 0, self._birth, <unsigned short> size)
        self._table[at].hash = hash
        self._table[at].holder = <unsigned int> id + 1
        self._make_room(0)
        if self._shapes:
            self._add_to_shapes(<unsigned int> id)
        return id

    cdef void _add_to_shapes(self, unsigned int id) except *:
        cdef bytes text = self.subject(id)
        cdef Shape shape
        for shape in self._shapes.values():
            shape.add(id, text)

    cpdef long long intern(self, bytes subject) except -1:
        return self._intern(PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))

    cpdef long long find(self, bytes subject) except -2:
        cdef const char *text = PyBytes_AS_STRING(subject)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(subject)
        cdef Py_ssize_t at
        if self._slots == 0:
            return -1
        if self._is_latest(text, size):
            return self._latest
        at = self._slot_of(text, size, self._hash(text, size))
        return <long long> self._table[at].holder - 1

    cdef void _check(self, unsigned int id) except *:
        if id >= self._ids or self._subjects[id].text == NULL:
            raise IndexError(id)

    cpdef bytes subject(self, unsigned int id):
        self._check(id)
        return PyBytes_FromStringAndSize(self._subjects[id].text, self._subjects[id].size)

    def birth(self, unsigned int id):
        return self._subjects[id].birth if id < self._ids and self._subjects[id].text != NULL else 0

    cpdef unsigned int count(self, unsigned int id) except? 0xFFFFFFFE:
        self._check(id)
        return self._subjects[id].count

    cpdef unsigned long long first(self, unsigned int id) except? 0xFFFFFFFE:
        self._check(id)
        return self._subjects[id].first

    cpdef unsigned long long last(self, unsigned int id) except? 0xFFFFFFFE:
        self._check(id)
        return self._subjects[id].last

    cpdef void set_first(self, unsigned int id, unsigned long long seq) except *:
        self._check(id)
        self._subjects[id].first = seq

    cpdef void set_last(self, unsigned int id, unsigned long long seq) except *:
        self._check(id)
        self._subjects[id].last = seq

    cpdef void added(self, unsigned int id, unsigned long long seq) except *:
        self._check(id)
        if self._subjects[id].count == 0:
            self.live += 1
            self._subjects[id].first = seq
        self._subjects[id].count += 1
        self._subjects[id].last = seq

    cdef void _load(self, unsigned int id, unsigned int count, unsigned long long first, unsigned long long last) noexcept:
        if self._subjects[id].count == 0:
            self.live += 1
            self._subjects[id].first = first
        self._subjects[id].count += count
        if last > self._subjects[id].last:
            self._subjects[id].last = last

    def load_block(self, bytes names, bytes stats, unsigned long long base):
        cdef const char *at = PyBytes_AS_STRING(names)
        cdef const char *stop = at + PyBytes_GET_SIZE(names)
        cdef const char *end
        cdef const unsigned int *numbers = <const unsigned int *> PyBytes_AS_STRING(stats)
        cdef Py_ssize_t count = PyBytes_GET_SIZE(stats) // 12
        cdef Py_ssize_t i
        cdef unsigned int id
        cdef const char *texts[AHEAD]
        cdef Py_ssize_t sizes[AHEAD]
        cdef unsigned int hashes[AHEAD]
        cdef Py_ssize_t n
        if PyBytes_GET_SIZE(stats) % 12:
            raise ValueError("the numbers of a subject are three of four bytes each")
        self._make_room(count)
        for i in range(count + AHEAD):
            n = i % AHEAD
            if i >= AHEAD:
                id = <unsigned int> self._intern_hashed(texts[n], sizes[n], hashes[n])
                self._load(id, numbers[0], base + numbers[1], base + numbers[2])
                numbers += 3
            if i < count:
                if at > stop:
                    raise ValueError("fewer subjects than numbers")
                end = <const char *> memchr(at, 10, stop - at)
                if end == NULL:
                    end = stop
                texts[n] = at
                sizes[n] = end - at
                hashes[n] = self._hash(at, end - at)
                __builtin_prefetch(&self._table[hashes[n] & (self._slots - 1)])
                at = end + 1
        if at <= stop:
            raise ValueError("more subjects than numbers")

    cpdef void removed(self, unsigned int id, unsigned long long seq) except *:
        self._check(id)
        self._subjects[id].count -= 1
        if self._subjects[id].count == 0:
            self.live -= 1
            self._forget(id)
            return
        if self._subjects[id].first == seq:
            if self._subjects[id].count == 1 and self._subjects[id].last != seq:
                self._subjects[id].first = self._subjects[id].last
            else:
                self._subjects[id].first = 0
        if self._subjects[id].last == seq:
            self._subjects[id].last = 0

    def clear(self):
        cdef Py_ssize_t id
        for id in range(self._ids):
            if self._subjects[id].text != NULL:
                self._subjects[id].count = 0
                self._forget(<unsigned int> id)
        self.live = 0

    cdef void _forget(self, unsigned int id) except *:
        cdef unsigned int hash = self._hash(self._subjects[id].text, self._subjects[id].size)
        cdef Py_ssize_t at = self._slot_of(self._subjects[id].text, self._subjects[id].size, hash)
        cdef Py_ssize_t next = at
        cdef Py_ssize_t home
        cdef Py_ssize_t mask = self._slots - 1
        cdef Shape shape
        for shape in self._shapes.values():
            shape.remove(id)
        # Close the hole: move back what would not be found across an empty slot.
        while True:
            next = (next + 1) & mask
            if not self._table[next].holder:
                break
            home = self._table[next].hash & mask
            if ((next - home) & mask) >= ((next - at) & mask):
                self._table[at] = self._table[next]
                at = next
        self._table[at].holder = 0
        free(self._subjects[id].text)
        self._subjects[id].text = NULL
        if self._free_count == self._free_capacity:
            self._free_capacity = self._free_capacity * 2 + 8
            self._free = <unsigned int *> resized(self._free, self._free_capacity * sizeof(unsigned int))
        self._free[self._free_count] = id
        self._free_count += 1

    def ids(self):
        cdef Py_ssize_t id
        return [id for id in range(self._ids) if self._subjects[id].text != NULL and self._subjects[id].count]

    cpdef list matching(self, bytes pattern):
        cdef long long id
        cdef Shape shape = None
        if not has_wildcard(pattern):
            id = self.find(pattern)
            return [id] if id >= 0 and self._subjects[id].count else []
        if self._ids - self._free_count >= FEW_SUBJECTS:
            shape = self._shape_for(pattern)
        among = self.ids() if shape is None else shape.candidates(pattern)
        return [id for id in among if matches(pattern, self.subject(<unsigned int> id)) and self._subjects[id].count]

    cdef Shape _shape_for(self, bytes pattern):
        cdef tuple form = form_of(pattern)
        cdef Shape shape
        cdef Py_ssize_t id
        if form is None:
            return None
        shape = self._shapes.pop(form, None)
        if shape is None:
            shape = Shape(*form)
            for id in range(self._ids):
                if self._subjects[id].text != NULL:
                    shape.add(<unsigned int> id, self.subject(<unsigned int> id))
            if len(self._shapes) == SHAPES_KEPT:
                del self._shapes[next(iter(self._shapes))]
        self._shapes[form] = shape
        return shape


cdef class SubjectFilter:
    def __cinit__(self):
        self._verdicts = NULL
        self._seen = NULL
        self._size = 0
        self.only = -1

    def __init__(self, SubjectIndex index, tuple patterns):
        self._index = index
        self.patterns = patterns = tuple(dict.fromkeys(patterns))
        self.literal = patterns[0] if len(patterns) == 1 and not has_wildcard(patterns[0]) else b""
        self._trie = None
        if len(patterns) > 1:
            self._trie = PatternTrie()
            for pattern in patterns:
                if is_pattern(pattern):
                    self._trie.insert(pattern, pattern)

    def __dealloc__(self):
        free(self._verdicts)
        free(self._seen)

    cpdef void refresh(self) except *:
        if self.literal:
            self.only = self._index.find(self.literal)

    cpdef long long at_or_after(self, long long seq) except -2:
        cdef long long wanted = -1
        cdef long long first
        cdef long long last
        cdef list ids
        if self.literal:
            self.refresh()
            if self.only < 0 or self._index._subjects[self.only].count == 0:
                return -1
            last = self._index._subjects[self.only].last
            return -1 if last != 0 and last < seq else max(seq, <long long> self._index._subjects[self.only].first)
        if self._matches_many:
            return seq
        ids = self.ids()
        self._matches_many = len(ids) > MANY_SUBJECTS
        for id in ids:
            first = self._index._subjects[<unsigned int> id].first
            last = self._index._subjects[<unsigned int> id].last
            if last == 0 or last >= seq:
                if first <= seq:
                    return seq
                if wanted < 0 or first < wanted:
                    wanted = first
        return wanted

    cpdef bint accepts(self, unsigned int id) except -1:
        if self.literal:
            return <long long> id == self.only
        if id < self._size and self._seen[id] == self._index._subjects[id].birth:
            return self._verdicts[id]
        return self._decide(id)

    cdef bint _decide(self, unsigned int id) except -1:
        cdef Py_ssize_t wanted
        cdef bytes text = self._index.subject(id)
        cdef bint verdict
        if self._trie is None:
            verdict = matches(<bytes> self.patterns[0], text)
        else:
            verdict = len(self._trie.match(text)) > 0
        if id >= self._size:
            wanted = id + 1 + (id >> 1)
            self._verdicts = <unsigned char *> resized(self._verdicts, wanted)
            self._seen = <unsigned int *> resized(self._seen, wanted * sizeof(unsigned int))
            memset(self._seen + self._size, 0, (wanted - self._size) * sizeof(unsigned int))
            self._size = wanted
        self._verdicts[id] = verdict
        self._seen[id] = self._index._subjects[id].birth
        return verdict

    def ids(self):
        cdef set found
        cdef set forms
        cdef list wild
        cdef bint few
        if self._trie is None:
            return self._index.matching(self.patterns[0])
        wild = [pattern for pattern in self.patterns if has_wildcard(pattern)]
        forms = {form_of(pattern) for pattern in wild}
        few = self._index.live < FEW_SUBJECTS
        if wild and (few or None in forms or len(forms) > SHAPES_KEPT):
            return [id for id in self._index.ids() if self._trie.match(self._index.subject(id))]
        found = set()
        for pattern in self.patterns:
            found.update(self._index.matching(pattern))
        return list(found)

    def total(self):
        cdef unsigned long long found = 0
        for id in self.ids():
            found += self._index._subjects[<unsigned int> id].count
        return found
