//! Cases of `read_more`: when it is declared, what it answers, its bound.
